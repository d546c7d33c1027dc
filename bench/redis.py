"""What the Redis store costs beside the least that BullMQ's wire allows.

``python -m bench redis``: in one run and on one server, jobs per second of

* the floor: a hand-written script that takes and one that finishes jobs, pipelined through
  the same client library, with no history, search, limits or counters;
* the store: ``claim`` and ``swap`` in batches, as a worker calls them;
* ``add`` in batches, beside ``addBulk`` of a Node producer when Node is there.

Numbers mean something only beside each other: the floor is run before and after.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import uuid
from pathlib import Path

from redis.asyncio import Redis

from holdfast import lifecycle
from holdfast.form import Submission
from holdfast.job import Job
from holdfast.store import Change, Claim
from holdfast.store.redis import RedisStore
from holdfast.submission import accept
from tests.servers import Valkey
from tests.wire.peer import NodeMissing, cache_folder, find_node, installed

JOBS = 10_000
QUICK = 2000
BATCH = 100
ADDED = 1000
PAYLOAD = {"to": "someone@example.com", "subject": "hello", "body": "x" * 200}

TAKE = """
local taken = {}
for i = 1, tonumber(ARGV[1]) do
  local id = redis.call('RPOPLPUSH', KEYS[1] .. 'wait', KEYS[1] .. 'active')
  if not id then break end
  redis.call('SET', KEYS[1] .. id .. ':lock', ARGV[2], 'PX', 30000)
  redis.call('XADD', KEYS[1] .. 'events', 'MAXLEN', '~', 10000, '*', 'event', 'active',
    'jobId', id, 'prev', 'waiting')
  redis.call('HSET', KEYS[1] .. id, 'processedOn', ARGV[3])
  redis.call('HINCRBY', KEYS[1] .. id, 'ats', 1)
  taken[i] = {id, redis.call('HGETALL', KEYS[1] .. id)}
end
return taken
"""

FINISH = """
for i = 3, #ARGV do
  local id = ARGV[i]
  if redis.call('GET', KEYS[1] .. id .. ':lock') == ARGV[1] then
    redis.call('DEL', KEYS[1] .. id .. ':lock')
    redis.call('LREM', KEYS[1] .. 'active', -1, id)
    redis.call('ZADD', KEYS[1] .. 'completed', ARGV[2], id)
    redis.call('HSET', KEYS[1] .. id, 'returnvalue', 'null', 'finishedOn', ARGV[2], 'atm', 1)
    redis.call('XADD', KEYS[1] .. 'events', 'MAXLEN', '~', 10000, '*', 'event', 'completed',
      'jobId', id, 'returnvalue', 'null', 'prev', 'active')
  end
end
return #ARGV
"""


async def floor(port: int, prefix: str) -> float:
    """Take and finish every job of the queue by hand."""
    client = Redis(port=port, protocol=2)
    base = f"{prefix}:q:"
    take, finish = client.register_script(TAKE), client.register_script(FINISH)
    began, done = time.perf_counter(), 0
    while taken := await take(keys=[base], args=[BATCH, "token", 1]):
        await finish(keys=[base], args=["token", 2, *(job[0] for job in taken)])
        done += len(taken)
    spent = time.perf_counter() - began
    await client.aclose()
    return done / spent


def made(store: RedisStore, count: int) -> list[Job]:
    """Accept submissions; their cost is the library's, not the store's."""
    now = store.now()
    asked = Submission(type="bench", payload=PAYLOAD, queue="q", priority="CRITICAL")
    return [accept(asked, job_id=str(uuid.uuid4()), now=now) for _ in range(count)]


async def submit(store: RedisStore, count: int) -> float:
    """Add jobs in batches."""
    jobs = made(store, count)
    began = time.perf_counter()
    for first in range(0, count, ADDED):
        await store.add(jobs[first : first + ADDED])
    return count / (time.perf_counter() - began)


async def work(store: RedisStore) -> float:
    """Claim and complete everything, a batch at a time."""
    began, done = time.perf_counter(), 0
    want = Claim(queues=("q",), limit=BATCH, worker="bench", token="token", types=("bench",))
    while taken := await store.claim(want):
        now = store.now()
        answers = await store.swap(
            [Change(job, lifecycle.completed(job, b"null", now=now)) for job in taken]
        )
        assert all(answer.written for answer in answers)
        done += len(taken)
    return done / (time.perf_counter() - began)


NODE = """
import { Queue } from "bullmq";
const [, , port, jobs, batch, payload] = process.argv;
const connection = { host: "127.0.0.1", port: Number(port) };
const queue = new Queue("q", { prefix: "node", connection });
await queue.waitUntilReady();
const data = JSON.parse(payload);
const began = performance.now();
for (let n = 0; n < jobs; n += Number(batch))
  await queue.addBulk(Array.from({ length: Number(batch) }, () => ({ name: "bench", data })));
console.log(jobs / ((performance.now() - began) / 1000));
await queue.close();
"""


def node(port: int, folder: Path, count: int) -> float | None:
    """Add the same jobs with Node, where it can be had."""
    try:
        binary, _ = find_node()
        installed(folder)
    except (NodeMissing, subprocess.SubprocessError, OSError):
        return None
    (folder / "bench.mjs").write_text(NODE)
    command = [str(binary), "bench.mjs", str(port), str(count), str(ADDED), json.dumps(PAYLOAD)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


async def measure(server: Valkey, count: int) -> dict[str, float]:
    """Run the floor, the store, and the floor again."""
    found: dict[str, float] = {}
    for name in ("floor before", "floor after"):
        prefix = name.replace(" ", "-")
        async with RedisStore.from_url(f"{server.url}?prefix={prefix}") as store:
            await submit(store, count)
        if name == "floor after":
            async with RedisStore.from_url(f"{server.url}?prefix=ours") as store:
                found["add"] = await submit(store, count)
                found["claim and swap"] = await work(store)
        found[name] = await floor(server.port, prefix)
    return found


async def main(*, quick: bool = False, folder: str | None = None) -> None:
    """Print the table."""
    count = QUICK if quick else JOBS
    with Valkey(["--appendfsync", "everysec"]) as server:
        found = await measure(server, count)
        place = Path(folder) if folder else cache_folder()
        rate = await asyncio.to_thread(node, server.port, place, count)
    if rate is not None:
        found["addBulk of Node"] = rate
    for name, value in found.items():
        print(f"{name:>16} {value:10,.0f} jobs/s")
    share = found["claim and swap"] / max(found["floor before"], found["floor after"])
    print(f"claim and swap reach {share:.0%} of the floor")
