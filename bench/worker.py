"""What a worker costs: jobs per second beside the store's own speed, huey and flexiq, how fast
work is picked up, what idling costs, and how fast processes are fed and killed.
"""

from __future__ import annotations

import asyncio
import json
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
from bench.hand import Hand
from bench.sqlite import BATCH, BYTES, jobs, work_by_hand, work_off
from holdfast import Holdfast, State
from holdfast.operations.workers import workers
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite.location import Location

SLOTS = 100
"""As many as the loop by hand takes in one batch, so that neither groups more than the other."""
MANY_SLOTS = 500
"""What suits jobs that are coroutines and do next to nothing: larger groups."""
HUEY, FLEXIQ = (Path(__file__).with_name(f"{name}_peer.py") for name in ("huey", "flexiq"))
PROCESS = "?durability=process"
Figures = dict[str, float]


async def main(*, effort: Effort, folder: str | None) -> None:
    """Print every figure."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        await throughput(Path(place), effort)
        await pickup(Path(place), seconds=effort.pick(20.0, 5.0, 0.3))
        await idling(Path(place), seconds=effort.pick(60.0, 5.0, 0.3))
        await dispatch(Path(place), count=effort.pick(5_000, 2_000, 100))
        await killing(Path(place), times=effort.pick(10, 3, 1), after=effort.pick(1.0, 1.0, 0.2))


async def throughput(place: Path, effort: Effort) -> None:
    """Let everyone take turns and compare the medians."""
    rounds, count = effort.pick((5, 10_000), (3, 4_000), (1, BATCH))
    peers = {
        name: python_with([name], variable=variable, folder=place / name, install=effort.installs)
        for name, variable in (("huey", "HUEY_PYTHON"), ("flexiq", "FLEXIQ_PYTHON"))
    }
    rates: defaultdict[str, list[float]] = defaultdict(list)
    costs: defaultdict[str, list[float]] = defaultdict(list)
    for i in range(rounds):
        found = {
            "hand": await by_hand(place / f"hand{i}.db", count),
            "store": await by_store(place / f"store{i}.db", count),
            "worker": await by_worker(place / f"worker{i}.db", count, SLOTS),
            "many": await by_worker(place / f"many{i}.db", count, MANY_SLOTS),
            "process": await by_worker(place / f"process{i}.db", count, MANY_SLOTS, PROCESS),
        }
        if python := peers["huey"]:
            found["huey"] = by_peer(python, HUEY, place / f"huey{i}.db", count, 4)
        if python := peers["flexiq"]:
            found["flexiq"] = by_peer(python, FLEXIQ, place / f"flexiq{i}.db", count)
        for name, figures in found.items():
            rates[name].append(count / figures["seconds"])
            costs[name].append(figures["cpu"] / count * 1e6)
        costs["loop"].append(found["worker"]["loop"] / count * 1e6)
    show(rates, costs)


def show(rates: dict[str, list[float]], costs: dict[str, list[float]]) -> None:
    """Print the medians, and how the worker compares with the others."""
    print(f"{'no-op jobs worked off:':42} {'jobs/s':>8} {'CPU us/job':>11}")
    for name, rate in rates.items():
        cost = statistics.median(costs[name])
        print(f"{TITLES[name]:42} {statistics.median(rate):8,.0f} {cost:11.0f}")
        if name == "worker":
            loop = statistics.median(costs["loop"])
            print(f"{'  of which on the event loop':42} {'':8} {loop:11.0f}")
    for name, other in (("worker", "huey"), ("many", "huey"), ("process", "flexiq")):
        line = (
            f"{TITLES[name]}: {share(rates, 'hand', name):.0%} of the hand-written ceiling"
            f" ({share(costs, name, 'hand'):.0%} by CPU)"
        )
        if other in rates:
            line += (
                f", {share(rates, other, name):.1f} x {other}"
                f" ({share(costs, name, other):.1f} x by CPU)"
            )
        print(line, flush=True)


TITLES = {
    "hand": "claim + settle by hand, batches of 100",
    "store": "claim + settle by the store, batches of 100",
    "worker": f"one worker process, {SLOTS} slots",
    "many": f"one worker process, {MANY_SLOTS} slots",
    "process": f"the same, {MANY_SLOTS} slots, durability=process",
    "huey": "one huey consumer, 4 threads",
    "flexiq": "one flexiq worker, durable as durability=process",
}


def share(figures: dict[str, list[float]], of: str, name: str) -> float:
    """Return the median over the rounds of how one figure compares with another of its round."""
    return statistics.median(b / a for a, b in zip(figures[of], figures[name], strict=True))


async def by_hand(path: Path, count: int) -> Figures:
    """Claim and settle with the sqlite3 module."""
    hand = Hand(path.parent, path.name)
    for _ in range(count // BATCH):
        hand.submit([BYTES] * BATCH)
    started = clocks()
    for _ in range(count // BATCH):
        work_by_hand(hand)
    return since(started)


async def by_store(path: Path, count: int) -> Figures:
    """Claim and settle with the store's verbs alone."""
    async with SQLiteStore(Location(path=path)) as store:
        for _ in range(count // BATCH):
            await store.add(jobs(store, BATCH))
        started = clocks()
        for _ in range(count // BATCH):
            await work_off(store)
        return since(started)


async def by_worker(path: Path, count: int, slots: int, options: str = "") -> Figures:
    """Run a worker process until all is done."""
    url = f"sqlite:///{path}{options}"
    async with Holdfast(url) as app:
        await fill(app, "noop", count)
        figures = json.loads(start(url, "coroutines", slots).communicate()[0])
        (queue,) = await app.queues()
        assert queue.counts == {State.COMPLETED: count}
        return figures


def by_peer(python: str, script: Path, path: Path, *rest: int) -> Figures:
    """Run another queue's worker until all is done; huey's commits are as durable as ours."""
    command = [python, "-P", str(script), str(path), *map(str, rest)]  # http.py is not http
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


async def pickup(place: Path, seconds: float) -> None:
    """Submit to an idle worker; from just before the call to the first line of the handler."""
    url = f"sqlite:///{place}/pickup.db"
    async with Holdfast(url) as app:
        worker = await started(app, url)
        asked = {}
        begun = time.monotonic()
        for n in range(int(20 * seconds)):
            # Spread over the interval, so that it cannot keep step with anything that polls.
            due = begun + (n + n * 7919 % 1000 / 1000) / 20
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            before = time.time()
            asked[(await app.submit("when")).job_id] = before
        waits = []
        for job_id, before in asked.items():
            status = await app.wait(job_id, timeout=10)
            assert isinstance(status.output, float)
            waits.append((status.output - before) * 1000)
        end(worker)
    waits.sort()
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    print(
        f"pickup at 20 jobs/s, submit to begun: p50 {p50:.1f} ms, p99 {p99:.1f} ms",
        flush=True,
    )


async def idling(place: Path, seconds: float) -> None:
    """See what a worker with nothing to do uses."""
    url = f"sqlite:///{place}/idle.db"
    async with Holdfast(url) as app:
        worker = await started(app, url)
        await asyncio.sleep(min(1.0, seconds))
        before = ticks(worker.pid)
        await asyncio.sleep(seconds)
        spent = (ticks(worker.pid) - before) / os.sysconf("SC_CLK_TCK")
        memory = megabytes(worker.pid)
        end(worker)
    print(f"idle worker: {spent / seconds:.2%} CPU, {memory:.0f} MB", flush=True)


async def dispatch(place: Path, count: int) -> None:
    """Feed no-op functions to the process runner."""
    url = f"sqlite:///{place}/dispatch.db"
    async with Holdfast(url) as app:
        await fill(app, "noop.process", count)
        figures = json.loads(start(url, "drain", SLOTS).communicate()[0])
    print(f"process runner: {count / figures['seconds']:,.0f} jobs/s dispatched", flush=True)


async def killing(place: Path, times: int, after: float) -> None:
    """See how long past its timeout a computing process lives."""
    url = f"sqlite:///{place}/killing.db"
    async with Holdfast(url) as app:
        worker = await started(app, url)
        late: dict[bool, list[float]] = {False: [], True: []}
        await app.wait((await app.submit("noop.process", {"n": 1})).job_id, timeout=30)
        for stubborn in [False, True] * times:
            job = await app.submit("spin", {"stubborn": stubborn}, timeout=after, max_attempts=1)
            await app.wait(job.job_id, timeout=30)
            failure = (await app.failure(job.job_id)).failure
            assert failure is not None
            assert failure.duration_ms is not None
            late[stubborn].append(failure.duration_ms / 1000 - after)
        end(worker)
    polite, stubborn_ = (max(late[each]) * 1000 for each in (False, True))
    print(f"killed past its timeout, at worst: {polite:.0f} ms, deaf to SIGTERM {stubborn_:.0f} ms")


async def fill(app: Holdfast, type_: str, count: int) -> None:
    """Submit no-op jobs."""
    for start_at in range(0, count, BATCH):
        numbers = range(start_at, min(count, start_at + BATCH))
        await app.submit_batch([{"type": type_, "payload": {"n": n}} for n in numbers])


def start(url: str, mode: str, slots: int) -> subprocess.Popen[bytes]:
    """Start a worker process."""
    return subprocess.Popen(
        [sys.executable, "-m", "bench.site", mode, str(slots)],
        env={**os.environ, "HOLDFAST_URL": url},
        stdout=subprocess.PIPE,
    )


async def started(app: Holdfast, url: str) -> subprocess.Popen[bytes]:
    """Start a worker process and wait until it is there."""
    worker = start(url, "serve", SLOTS)
    async with asyncio.timeout(30):
        while not await workers(app.store):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.05)
    return worker


def end(worker: subprocess.Popen[bytes]) -> None:
    """Stop a worker process."""
    worker.terminate()
    worker.communicate(timeout=30)


def ticks(pid: int) -> int:
    """Return the processor time a process used, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def megabytes(pid: int) -> float:
    """Return how much memory of a process is resident."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2


def clocks() -> tuple[float, float]:
    """Return both clocks."""
    return time.perf_counter(), time.process_time()


def since(started_at: tuple[float, float]) -> Figures:
    """Return what passed on both clocks."""
    now = clocks()
    return {"seconds": now[0] - started_at[0], "cpu": now[1] - started_at[1]}
