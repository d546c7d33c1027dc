"""The least that BullMQ's format allows: two minimal scripts, compared with the store's verbs."""

from __future__ import annotations

import asyncio
import time
import uuid

from redis.asyncio import Redis

from holdfast.model import lifecycle
from holdfast.model.acceptance import accept
from holdfast.model.submission import Submission
from holdfast.store import Change, Claim
from holdfast.store.redis import RedisStore

BATCH = 100
ADDED = 1000
LOOPS = 2
"""Concurrent loops, so that server and client work at the same time."""
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


async def by_hand(port: int, prefix: str) -> float:
    """Claim and finish every job of the queue with two minimal scripts."""
    client = Redis(port=port, protocol=2)
    base = f"{prefix}:q:"
    take, finish = client.register_script(TAKE), client.register_script(FINISH)

    async def loop(number: int) -> int:
        done, token = 0, f"token{number}"
        while taken := await take(keys=[base], args=[BATCH, token, 1]):
            await finish(keys=[base], args=[token, 2, *(job[0] for job in taken)])
            done += len(taken)
        return done

    began = time.perf_counter()
    done = sum(await asyncio.gather(*(loop(n) for n in range(LOOPS))))
    spent = time.perf_counter() - began
    await client.aclose()
    return done / spent


async def by_store(store: RedisStore) -> float:
    """Claim and complete every job with the store's verbs and the lifecycle."""

    async def loop(number: int) -> int:
        done = 0
        want = Claim(
            queues=("q",), limit=BATCH, worker="bench", token=f"token{number}", types=("bench",)
        )
        while taken := await store.claim(want):
            now = store.now()
            answers = await store.swap(
                [Change(job, lifecycle.completed(job, b"null", now=now)) for job in taken]
            )
            assert all(answer.written for answer in answers)
            done += len(taken)
        return done

    began = time.perf_counter()
    done = sum(await asyncio.gather(*(loop(n) for n in range(LOOPS))))
    return done / (time.perf_counter() - began)


async def add(store: RedisStore, count: int) -> None:
    """Add jobs in batches."""
    now = store.now()
    submission = Submission(type="bench", payload=PAYLOAD, queue="q", priority="CRITICAL")
    jobs = [accept(submission, job_id=str(uuid.uuid4()), now=now) for _ in range(count)]
    for first in range(0, count, ADDED):
        await store.add(jobs[first : first + ADDED])
