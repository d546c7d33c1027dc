"""Which deaths of workers make their jobs suspects."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast import Holdfast, JobContext
from holdfast.maintenance.reaper import Reaper
from holdfast.maintenance.suspicion import may_have_killed
from holdfast.model.job import Job
from holdfast.observe import Silent
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.host import HOST, uptime
from holdfast.store import Claim, Fence, MemoryStore
from holdfast.worker import polling, quarantine
from holdfast.worker.supervisor.deaths import TOGETHER, Deaths
from tests.worker.rig import until, working
from tests.worker.test_claiming import die_with, gated

LEASE = 30
LONGEST_IDLE = polling.POLL


class Site:
    """A store with one job that a worker holds."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.app = Holdfast(store=MemoryStore(self.clock), clock=self.clock)

    async def lost(self, worker: str, renewed_after: float = 0.0) -> Job:
        """Return a running job whose worker died after its last renewal."""
        await self.app.submit("job", lease=LEASE)
        want = Claim(queues=("default",), limit=1, worker=worker, token="t")
        (job,) = await self.app.store.claim(want)
        if renewed_after:
            self.clock.advance(renewed_after)
            await self.app.store.extend([Fence(job.id, "t")])
        self.clock.advance(LEASE + 1)
        (lost,) = await self.app.store.overdue(1)
        return lost


@pytest.mark.req("S-10")
@pytest.mark.parametrize(
    ("worker", "renewed_after", "up_for", "expected"),
    [
        ("alone", 0.0, 1, True),
        ("alone", 2.0, 1, True),
        ("alone", 4.0, 1, False),
        (f"{HOST}-12-ab", 0.0, LEASE + 60, True),
        (f"{HOST}-12-ab", 0.0, LEASE - 10, False),
        ("elsewhere-12-ab", 0.0, LEASE - 10, True),
        (f"{HOST}-supervised-12-ab", 0.0, LEASE + 60, False),
    ],
    ids=[
        "died soon after the start",
        "renewed once",
        "ran for a while",
        "host stayed up",
        "host restarted",
        "another host",
        "its supervisor died too",
    ],
)
async def test_job_is_suspected_only_if_it_may_have_killed_its_worker(
    worker: str, renewed_after: float, up_for: int, expected: bool
) -> None:
    site = Site()
    async with site.app:
        job = await site.lost(worker, renewed_after)

    suspected = may_have_killed(job, site.clock.now(), lambda: timedelta(seconds=up_for))

    assert expected == suspected


@pytest.mark.req("S-10")
@pytest.mark.parametrize(("worker", "expected"), [("alone", True), ("h-supervised-1-a", False)])
async def test_reaper_records_whether_a_job_is_suspected(worker: str, expected: bool) -> None:
    site = Site()
    async with site.app:
        lost = await site.lost(worker)

        await Reaper(site.app.store, site.app.randomness, Silent()).once()

        (after,) = await site.app.store.get([lost.id])
    assert after is not None
    assert after.failure is not None
    assert expected == after.failure.suspect


def test_host_has_been_up_for_a_while() -> None:
    assert timedelta(0) < uptime() <= uptime()


@pytest.mark.req("S-10")
@pytest.mark.parametrize(
    ("codes", "blocked", "expected"),
    [
        ([-signal.SIGKILL], False, [True]),
        ([-signal.SIGSEGV], False, [True]),
        ([3], False, [True]),
        ([-signal.SIGKILL, -signal.SIGKILL], False, [False, False]),
        ([-signal.SIGTERM], False, [False]),
        ([-signal.SIGKILL], True, [False]),
    ],
)
async def test_process_that_was_stopped_or_died_with_another_was_not_killed_by_a_job(
    codes: list[int], blocked: bool, expected: list[bool]
) -> None:
    clock = Holdfast("memory://").clock
    deaths = Deaths(clock)
    process = cast("Any", SimpleNamespace(was_blocked=blocked))

    judged = await asyncio.gather(*(deaths.by_job(process, code) for code in codes))

    assert expected == judged
    await asyncio.sleep(1.5 * TOGETHER)  # a later death has nothing to do with them
    other = cast("Any", SimpleNamespace(was_blocked=False))
    assert await deaths.by_job(other, -signal.SIGKILL)


@pytest.mark.req("S-10")
async def test_next_suspect_starts_although_the_last_one_ended_during_a_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Obstructed(MemoryStore):
        """Claims jobs of other types slowly, and wakes nobody."""

        async def claim(self, want: Claim) -> list[Job]:
            if want.types == ("other",):
                await asyncio.sleep(0.1)  # a suspect ends during the second of these claims
            return await super().claim(want)

        async def arrivals(self, queues: object, seen: int, wait: timedelta) -> int:
            await asyncio.sleep(wait.total_seconds())  # a store that sends no wake-ups
            return seen

    monkeypatch.setattr(polling, "FIRST_POLL", timedelta(minutes=1))
    monkeypatch.setattr(quarantine, "FIRST_WATCH", 60.0)
    app = Holdfast(store=Obstructed())
    gated(app, "other")
    started: list[str] = []

    @app.task("suspect")
    async def suspect(ctx: JobContext) -> None:
        started.append(ctx.job_id)
        await asyncio.sleep(0.15)  # a job that takes longer than one claim

    async with app:
        for _ in range(3):
            await app.submit("suspect")
        await die_with(app, 3)
        await app.store.promote(3)
        begun = asyncio.get_running_loop().time()
        async with working(app, slots=10):
            await until(lambda: len(started) == 3)
            taken = asyncio.get_running_loop().time() - begun

    assert taken < LONGEST_IDLE.total_seconds()
