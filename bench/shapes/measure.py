"""Running worker processes over a store, and what it took."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median

from bench.pg.drain import cpu, end
from bench.shapes.places import Places
from holdfast import Holdfast, State
from holdfast.operations.workers import workers

LONGEST = 120.0
BATCH = 1000


@dataclass(frozen=True)
class Run:
    """Jobs per second, and microseconds of processor time per job."""

    rate: float
    worker: float
    server: float

    @property
    def cost(self) -> float:
        """The processor time of worker and server together."""
        return self.worker + self.server

    def __str__(self) -> str:
        return f"{self.worker:,.0f} + {self.server:,.0f} us"


class Crew:
    """Worker processes over one store."""

    def __init__(self, places: Places, url: str, members: Sequence[subprocess.Popen[bytes]]):
        self._places = places
        self._url = url
        self._members = members

    def spent(self) -> tuple[float, float]:
        """Return the processor time that workers and server have used so far."""
        return sum(cpu(each.pid) for each in self._members), self._places.spent(self._url)


@asynccontextmanager
async def crew(
    places: Places, app: Holdfast, url: str, variant: str, *, processes: int, slots: int
) -> AsyncIterator[Crew]:
    """Start worker processes, wait until all are there, and end them."""
    members = [
        subprocess.Popen(  # noqa: ASYNC220  # takes a moment
            [sys.executable, "-m", "bench.shapes.site", variant, str(slots)],
            env={**os.environ, "HOLDFAST_URL": url},
        )
        for _ in range(processes)
    ]
    try:
        await until(lambda: _are_there(app, processes))
        yield Crew(places, url, members)
    finally:
        for member in members:
            member.terminate()
        for member in members:
            end(member)


async def _are_there(app: Holdfast, count: int) -> bool:
    return len(await workers(app.store)) >= count


async def drain(  # the parts of one measurement
    places: Places,
    store: str,
    variant: str,
    jobs: Sequence[dict[str, object]],
    *,
    processes: int = 1,
    slots: int = 100,
) -> Run:
    """Fill a paused queue, start workers, resume it, and measure until all jobs have ended."""
    url = places.fresh(store)
    async with Holdfast(url) as app:
        await app.pause("default")
        await fill(app, jobs)
        places.settle(url)
        async with crew(places, app, url, variant, processes=processes, slots=slots) as members:
            return await measured(app, members, len(jobs), lambda: app.resume("default"))


async def measured(
    app: Holdfast, members: Crew, count: int, begin: Callable[[], Awaitable[object]]
) -> Run:
    """Measure from the beginning until so many jobs have ended."""
    before, begun = members.spent(), time.perf_counter()
    await begin()
    await until(lambda: _ended(app, count))
    seconds = time.perf_counter() - begun
    worker, server = (after - first for after, first in zip(members.spent(), before, strict=True))
    return Run(count / seconds, max(1.0, worker / count * 1e6), server / count * 1e6)


async def fill(app: Holdfast, jobs: Sequence[dict[str, object]]) -> None:
    """Submit jobs in batches."""
    for start in range(0, len(jobs), BATCH):
        await app.submit_batch(jobs[start : start + BATCH])


async def count_of(app: Holdfast, *states: State) -> int:
    """Return how many jobs are in one of these states."""
    return sum(each.counts.get(state, 0) for each in await app.queues() for state in states)


async def _ended(app: Holdfast, count: int) -> bool:
    return await count_of(app, State.COMPLETED, State.FAILED, State.DEAD_LETTER) >= count


async def until(holds: Callable[[], Awaitable[bool]], within: float = LONGEST) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(within):
        while not await holds():  # noqa: ASYNC110  # other processes
            await asyncio.sleep(0.02)


async def in_turns(rounds: int, *ways: Callable[[], Awaitable[Run]]) -> list[list[Run]]:
    """Run each way in turns: A B A B."""
    found: list[list[Run]] = [[] for _ in ways]
    for _ in range(rounds):
        for runs, way in zip(found, ways, strict=True):
            runs.append(await way())
    return found


def middle(runs: Sequence[Run]) -> Run:
    """Return the median of each figure."""
    return Run(
        median(each.rate for each in runs),
        median(each.worker for each in runs),
        median(each.server for each in runs),
    )


def numbered(type_: str, count: int) -> list[dict[str, object]]:
    """Return so many submissions of one type."""
    return [{"type": type_, "payload": {"n": n}} for n in range(count)]
