"""Many jobs lose their worker at once, in real processes: all of them start again soon."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.maintenance.suspicion import SOON
from holdfast.store import Search
from tests.worker.machines import Machines, worker_pids

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

JOBS = 300
SLOTS = JOBS + 20
LONGEST_SPREAD = 15.0
"""Seconds from the first to the last start on a busy machine."""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    yield machines
    machines.clear()


@pytest.fixture
async def app(machines: Machines) -> AsyncIterator[Holdfast]:
    async with machines.app() as app:
        yield app


async def running(app: Holdfast, attempt: int) -> None:
    """Wait until all jobs run in this attempt."""
    search = Search(states=(State.RUNNING,), types=("endure",), limit=JOBS)
    async with asyncio.timeout(60):
        while True:
            jobs = (await app.store.find(search)).jobs
            if JOBS == sum(job.attempt == attempt for job in jobs):
                return
            await asyncio.sleep(0.05)  # the workers are other processes


async def slowest_other(app: Holdfast, until: asyncio.Event) -> float:
    """Submit quick jobs of another type again and again; return how long the slowest took."""
    slowest = 0.0
    while not until.is_set():
        begun = time.monotonic()
        job = await app.submit("add", {"a": 1, "b": 1})
        await app.wait(job.job_id, timeout=60)
        slowest = max(slowest, time.monotonic() - begun)
    return slowest


async def ends(app: Holdfast, ids: list[str]) -> list[float]:
    """Wait until the jobs have completed; return when each started."""
    ended = [await app.wait(job_id, timeout=90) for job_id in ids]
    assert {State.COMPLETED} == {status.state for status in ended}
    return sorted(float(str(status.output)) for status in ended)


@pytest.mark.req("S-10")
async def test_jobs_of_a_lone_worker_that_dies_twice_start_soon(
    machines: Machines, app: Holdfast
) -> None:
    """Each time as soon as it holds them all, so that each of them may have killed it."""
    ids = [(await app.submit("endure", lease=2)).job_id for _ in range(JOBS)]
    for attempt in (1, 2):
        worker = machines.start("alone", slots=SLOTS)
        await running(app, attempt)
        worker.kill()
        worker.wait()
    machines.start("alone", slots=SLOTS)
    over = asyncio.Event()
    others = asyncio.create_task(slowest_other(app, over))

    starts = await ends(app, ids)

    over.set()
    print(f"last start after {starts[-1] - starts[0]:.1f} s, others {await others:.2f} s")
    assert starts[-1] - starts[0] < LONGEST_SPREAD
    assert await others < 5


@pytest.mark.req("S-10")
async def test_jobs_that_had_run_for_a_while_start_together_after_two_deaths(
    machines: Machines, app: Holdfast
) -> None:
    machines.start("supervisor", processes=1, slots=SLOTS)
    ids = [(await app.submit("endure")).job_id for _ in range(JOBS)]
    for attempt in (1, 2):
        await running(app, attempt)
        await asyncio.sleep(SOON.total_seconds() + 0.2)  # the jobs take so long
        (victim,) = {pid for pid in (await worker_pids(app)).values() if _runs(pid)}
        os.kill(victim, signal.SIGKILL)

    starts = await ends(app, ids)

    print(f"last start after {starts[-1] - starts[0]:.1f} s")
    assert starts[-1] - starts[0] < 4


@pytest.mark.req("S-10")
async def test_one_job_that_kills_its_worker_among_many_ends_alone(
    machines: Machines, app: Holdfast
) -> None:
    ids = [(await app.submit("brief")).job_id for _ in range(JOBS // 2)]
    killer = await app.submit("brief", {"kills": True})
    ids += [(await app.submit("brief")).job_id for _ in range(JOBS // 2)]
    begun = time.monotonic()
    machines.start("supervisor", processes=1, slots=SLOTS)

    ended = [await app.wait(job_id, timeout=60) for job_id in ids]

    print(f"last end after {time.monotonic() - begun:.1f} s")
    assert {State.COMPLETED} == {status.state for status in ended}
    dead = await app.wait(killer.job_id, timeout=60)
    assert (State.DEAD_LETTER, 3) == (dead.state, dead.attempt)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
