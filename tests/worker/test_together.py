"""What must hold across worker processes, on stores that processes can share."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.model.job import Event
from holdfast.model.times import parse_timestamp
from holdfast.model.workers import LEADERSHIP
from holdfast.store import Search
from tests.conformance.stores import PLACES
from tests.worker.machines import Machines, worker_pids
from tests.worker.rig import appeared, ended

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

WORKERS = 3
PER = timedelta(seconds=1)
RATE = 20


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    with PLACES[request.param](request) as place:
        machines = Machines(tmp_path, place.url)
        yield machines
        machines.clear()


@pytest.fixture
async def app(machines: Machines) -> AsyncIterator[Holdfast]:
    """The client's view, while several worker processes run."""
    async with machines.app() as app:
        for _ in range(WORKERS):
            machines.start("alone", app="tests.worker.shared:app", slots=10)
        async with asyncio.timeout(30):
            while len(await worker_pids(app)) < WORKERS:  # noqa: ASYNC110  # other processes
                await asyncio.sleep(0.05)
        yield app


async def test_each_tick_submits_exactly_one_job_though_the_leader_is_killed(
    app: Holdfast,
) -> None:
    await _ticks(app, 2)
    (lead,) = await app.store.locks(LEADERSHIP)
    os.kill((await worker_pids(app))[lead.holder], signal.SIGKILL)
    before = len(await _ticks(app, 0))

    found = await _ticks(app, before + 6)

    steps = {later - earlier for earlier, later in itertools.pairwise(found)}
    assert {timedelta(seconds=1)} == steps, "one tick twice, or one without a job"


async def _ticks(app: Holdfast, count: int) -> list[datetime]:
    """Wait for so many jobs of the schedule; return their instants, in order."""
    async with asyncio.timeout(40):
        while True:
            jobs = (await app.store.find(Search(types=("tick",), limit=1000))).jobs
            if len(jobs) >= count:
                return sorted(parse_timestamp(job.idempotency_key.split(":", 2)[2]) for job in jobs)
            await asyncio.sleep(0.1)  # another process submits the ticks


@pytest.mark.parametrize(("type_", "most"), [("narrow", 3), ("keyed", 1)])
async def test_a_limit_on_running_at_once_holds_across_processes(
    app: Holdfast, machines: Machines, type_: str, most: int
) -> None:
    diary = machines.file("diary")
    jobs = [(await app.submit(type_, {"diary": diary}, limit_key="k")).job_id for _ in range(20)]
    for job_id in jobs:
        assert State.COMPLETED is await ended(app, job_id, timeout=60)

    lines = Path(diary).read_text().splitlines()  # noqa: ASYNC240  # a few lines
    stays = [tuple(map(float, line.split())) for line in lines]
    assert len(jobs) == len(stays)
    together = [sum(came <= start < went for came, went, _ in stays) for start, _, _ in stays]
    assert max(together) <= most


@pytest.mark.req("S-6")
async def test_the_job_of_a_killed_process_continues_at_once_under_a_supervisor(
    machines: Machines,
) -> None:
    started = Path(machines.file("started"))
    async with machines.app() as app:
        machines.start("supervisor", processes=2)
        job = await app.submit("hold", {"started": str(started)})
        victim = int(await appeared(started, 30))

        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        status = await app.wait(job.job_id, timeout=20)

    assert (State.COMPLETED, 2) == (status.state, status.attempt)
    assert time.monotonic() - killed < 10, "it waited for its lease of 30 s"


async def test_a_rate_limit_holds_across_processes(app: Holdfast) -> None:
    jobs = [(await app.submit("paced")).job_id for _ in range(4 * RATE)]
    for job_id in jobs:
        assert State.COMPLETED is await ended(app, job_id, timeout=60)

    histories = await app.store.history(jobs)
    starts = sorted(edge.at for edges in histories for edge in edges if edge.event is Event.CLAIM)
    most = max(sum(at <= each < at + PER for each in starts) for at in starts)
    assert most <= RATE + RATE // 10
    assert len(starts) / ((starts[-1] - starts[0]) / PER) >= 0.9 * RATE
