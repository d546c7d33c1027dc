"""Maintenance: due times, dead workers, lifetimes, retention, schedules."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from holdfast import FailureCategory, Holdfast, State
from holdfast.maintenance import Maintenance
from holdfast.maintenance.cron import CronService
from holdfast.maintenance.leader import BACKOFF_SETTLING, SETTLING, SILENCE, StoreContact
from holdfast.maintenance.promoter import Promoter
from holdfast.maintenance.pruner import Pruner
from holdfast.maintenance.reaper import Reaper
from holdfast.maintenance.releaser import Releaser
from holdfast.model import lifecycle
from holdfast.model.job import Event, Job
from holdfast.model.policy import Retention
from holdfast.observe import Silent
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Change, Claim, Fence, MemoryStore, Search, Store
from holdfast.store.proxy import StoreProxy
from holdfast.store.values import NamedLock
from holdfast.tasks.schedule import MissedRuns, cron_entry, due_instants, instants
from holdfast.worker.worker import delivery_worker
from tests.simulation.loop import SimLoop
from tests.simulation.world import TrueClock
from tests.worker.faulty import FaultyStore
from tests.worker.rig import ended, working


class Yard:
    """A store on a clock that stands still, and an app over it."""

    def __init__(self) -> None:
        self.clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
        self.store = MemoryStore(self.clock)
        self.app = Holdfast(store=self.store, clock=self.clock)
        self.reaper = Reaper(self.store, Randomness(1), Silent())

    async def state(self, job_id: str) -> State:
        return (await self.app.get(job_id)).state

    async def claim(self, worker: str = "w", token: str = "t") -> Fence:
        want = Claim(queues=("default",), limit=1, worker=worker, token=token)
        (job,) = await self.store.claim(want)
        return Fence(job.id, token)


@pytest.fixture
async def yard() -> Yard:
    yard = Yard()
    await yard.app.start()
    return yard


async def test_the_promoter_returns_when_the_next_job_is_due(yard: Yard) -> None:
    promoter = Promoter(yard.store)
    assert 1.0 == await promoter.once()
    job = await yard.app.submit("x", delay=0.25)
    assert 0.25 == pytest.approx(await promoter.once())

    yard.clock.advance(0.25)
    await promoter.once()

    assert State.SCHEDULED is await yard.state(job.job_id)


@pytest.mark.req("S-6", "S-10")
async def test_the_reaper_recovers_and_reports_jobs_of_silent_workers(yard: Yard) -> None:
    job = await yard.app.submit("x")
    await yard.claim()
    yard.clock.advance(14.9)
    await yard.reaper.once()
    assert State.RUNNING is await yard.state(job.job_id)

    yard.clock.advance(0.1)
    await yard.reaper.once()

    status = await yard.app.get(job.job_id, include_history=True)
    assert State.RETRYING is status.state
    assert status.history is not None
    last = status.history[-1]
    assert (Event.LAPSE, "lease expired", "w") == (last.event, last.reason, last.worker_id)


@pytest.mark.req("S-6", "M-11")
@pytest.mark.parametrize("known_dead", [False, True], ids=["silent", "killed"])
async def test_the_reaper_ends_jobs_that_do_not_retry_crashes(
    yard: Yard, *, known_dead: bool
) -> None:
    job = await yard.app.submit("x", retry_crashes=False)
    after = await yard.app.submit("y", depends_on=[job.job_id])
    fence = await yard.claim()

    if known_dead:
        await yard.reaper.recover([fence], "it was killed")
    else:
        yard.clock.advance(15)
        await yard.reaper.once()

    assert (State.FAILED, State.FAILED) == (
        await yard.state(job.job_id),
        await yard.state(after.job_id),
    )


@pytest.mark.req("S-6", "S-10")
async def test_after_an_outage_heartbeats_and_outcomes_go_before_the_reaper(yard: Yard) -> None:
    contact = StoreContact(yard.clock)
    reaper = Reaper(yard.store, Randomness(1), Silent(), lambda: contact.is_steady)
    job = await yard.app.submit("x")
    fence = await yard.claim()

    yard.clock.advance(30)  # no worker reaches the store, so none could renew
    await reaper.once()
    assert State.RUNNING is await yard.state(job.job_id)

    contact.answered()
    await reaper.once()
    assert State.RUNNING is await yard.state(job.job_id)

    (beat,) = await yard.store.extend([fence])
    yard.clock.advance(SETTLING)
    await reaper.once()
    assert beat.held
    assert State.RUNNING is await yard.state(job.job_id)


@pytest.mark.req("S-6", "S-10")
async def test_after_an_outage_the_jobs_of_dead_workers_are_recovered_a_moment_later(
    yard: Yard,
) -> None:
    contact = StoreContact(yard.clock)
    reaper = Reaper(yard.store, Randomness(1), Silent(), lambda: contact.is_steady)
    job = await yard.app.submit("x")
    await yard.claim()
    yard.clock.advance(30)
    contact.answered()

    yard.clock.advance(SETTLING)
    await reaper.once()

    assert State.RETRYING is await yard.state(job.job_id)


def test_a_store_that_always_answers_late_is_steady_between_its_answers() -> None:
    clock = ManualClock()
    contact = StoreContact(clock)
    for _ in range(3):
        clock.advance(SILENCE + 1)
        assert not contact.is_steady
        contact.answered()
        clock.advance(SETTLING)
        assert contact.is_steady


@pytest.mark.req("S-9", "S-10")
def test_after_failures_a_store_is_steady_when_every_delayed_try_was_made() -> None:
    clock = ManualClock()
    contact = StoreContact(clock)
    contact.failed()
    clock.advance(SILENCE + 1)
    contact.answered()
    steady_after = 0.0
    while not contact.is_steady:
        clock.advance(0.25)
        contact.answered()
        steady_after += 0.25

    assert BACKOFF_SETTLING == steady_after


@pytest.mark.req("S-6", "S-10")
async def test_a_lease_renewed_while_the_reaper_decides_is_kept(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await yard.app.submit("x")
    fence = await yard.claim()
    yard.clock.advance(30)
    overdue = yard.store.overdue

    async def renewed_meanwhile(limit: int) -> list[Job]:
        found = await overdue(limit)
        await yard.store.extend([fence])
        return found

    monkeypatch.setattr(yard.store, "overdue", renewed_meanwhile)
    await yard.reaper.once()

    assert State.RUNNING is await yard.state(job.job_id)


@pytest.mark.req("S-10", "M-11", "L-6")
async def test_a_job_that_silences_every_worker_ends_dead_of_a_system_failure(yard: Yard) -> None:
    job = await yard.app.submit("x", max_attempts=3)
    for i in range(3):
        await yard.claim(token=str(i))
        yard.clock.advance(31)
        await yard.reaper.once()
        yard.clock.advance(2)
        await Promoter(yard.store).once()

    details = await yard.app.failure(job.job_id)
    assert State.DEAD_LETTER is details.final_state
    assert 3 == details.total_attempts
    assert {FailureCategory.SYSTEM} == {a.failure.category for a in details.attempts if a.failure}


async def test_recovering_a_dead_worker_touches_only_what_it_still_held(yard: Yard) -> None:
    mine, taken = await yard.app.submit("x"), await yard.app.submit("x")
    fence = await yard.claim(token="mine")
    await yard.claim(worker="other", token="theirs")

    recovered = await yard.reaper.recover([fence, Fence(taken.job_id, "older")], "it was killed")
    await yard.store.promote(10)

    assert 1 == recovered
    assert State.SCHEDULED is await yard.state(mine.job_id)
    assert State.RUNNING is await yard.state(taken.job_id)


@pytest.mark.req("M-6", "L-6")
async def test_a_job_that_outlives_its_lifetime_ends_dead(yard: Yard) -> None:
    waiting = await yard.app.submit("x", lifetime=60, hold=True)
    ready = await yard.app.submit("x", lifetime=60)
    later = await yard.app.submit("x", lifetime=60, delay=30)
    fresh = await yard.app.submit("x", lifetime=61)
    yard.clock.advance(60)

    await yard.reaper.once()

    for job in (waiting, ready, later):
        details = await yard.app.failure(job.job_id)
        assert State.DEAD_LETTER is details.final_state
        assert details.failure is not None
        assert "LIFETIME_EXCEEDED" == details.failure.code
    assert State.SCHEDULED is await yard.state(fresh.job_id)


async def test_the_pruner_deletes_what_was_kept_long_enough(yard: Yard) -> None:
    old = await yard.app.submit("x")
    await yard.app.cancel(old.job_id)
    yard.clock.advance(timedelta(days=6))
    young = await yard.app.submit("x")
    await yard.app.cancel(young.job_id)
    yard.clock.advance(timedelta(days=1))

    await Pruner(yard.store, Retention()).once()

    assert [False, True] == [
        job is not None for job in await yard.store.get([old.job_id, young.job_id])
    ]


@pytest.mark.req("M-9")
async def test_the_releaser_finds_what_a_crash_left_undecided(yard: Yard) -> None:
    first = await yard.app.submit("x")
    second = await yard.app.submit("x", depends_on=[first.job_id])
    third = await yard.app.submit("x", depends_on=[second.job_id])
    (job,) = await yard.store.get([first.job_id])
    assert job is not None
    await yard.store.swap([Change(job, lifecycle.cancelled(job, now=yard.clock.now()))])

    await Releaser(yard.store).once()

    assert State.CANCELLED is await yard.state(second.job_id)
    assert State.CANCELLED is await yard.state(third.job_id)


# --- outages -----------------------------------------------------------------------------------


class Wired(FaultyStore):
    """A store whose outages break the calls that wait, as those of a server do."""

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        ask = cast("Callable[..., Awaitable[int]]", self.__getattr__("arrivals"))
        look, number = timedelta(milliseconds=10), seen
        for _ in range(wait // look + 1):
            number = await ask(queues, seen, look)
            if number != seen:
                break
        return number


def lateness(begin: float, length: float) -> float:
    """Return how long after an outage a job became ready that was due within it, in seconds."""
    loop = SimLoop(random.Random(1))
    clock = TrueClock(loop)
    store = Wired(MemoryStore(clock))
    app = Holdfast(store=cast("Store", store), clock=clock, randomness=Randomness(1))

    async def story() -> float:
        await app.start()
        maintenance = asyncio.ensure_future(
            Maintenance(app, "w", ("default",), Silent(), make_worker=delivery_worker).run()
        )
        job = await app.submit("x", delay=begin + length / 2)
        await asyncio.sleep(begin)  # in virtual time
        store.away = {"*"}
        await asyncio.sleep(length)  # in virtual time
        store.away = set()
        back = clock.monotonic()
        async with asyncio.timeout(10):
            while State.SCHEDULED is not (await app.get(job.job_id)).state:  # noqa: ASYNC110  # in virtual time
                await asyncio.sleep(0.01)
        assert not maintenance.done()
        return clock.monotonic() - back

    try:
        return loop.run_until_complete(story())
    finally:
        loop.take_back()


@pytest.mark.req("S-9")
@pytest.mark.parametrize("length", [0.3, 2.0, 9.0])
def test_what_was_due_in_an_outage_becomes_ready_as_soon_as_it_is_over(length: float) -> None:
    late = [lateness(1 + n / 10, length) for n in range(15)]

    assert max(late) < 0.35


# --- schedules -------------------------------------------------------------------------------


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def schedule(expression: str, tz: str, missed: MissedRuns = MissedRuns.ONE) -> object:
    return cron_entry("tick", "tick", expression, tz, missed, None, {})


@pytest.mark.parametrize(
    ("expression", "tz", "after", "expected"),
    [
        # Berlin: the hour after 02:00 is skipped in March and comes twice in October.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00",
            ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"],
        ),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00",
            ["2026-10-25T00:30", "2026-10-26T01:30"],
        ),
        (
            "0 3 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00",
            ["2026-03-29T01:00", "2026-03-30T01:00"],
        ),
        # Every half hour goes on in real time through both changes.
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2026-03-29T00:15",
            ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"],
        ),
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2026-10-24T23:45",
            ["2026-10-25T00:00", "2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30"],
        ),
        # New York, and a zone that moves by half an hour.
        (
            "15 2 * * *",
            "America/New_York",
            "2026-03-07T12:00",
            ["2026-03-08T07:00", "2026-03-09T06:15"],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00",
            ["2026-11-01T05:30", "2026-11-02T06:30"],
        ),
        (
            "10 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-02T20:00",
            ["2026-10-03T15:30", "2026-10-04T15:10"],
        ),
        ("@hourly", "UTC", "2026-03-29T00:30", ["2026-03-29T01:00", "2026-03-29T02:00"]),
    ],
)
def test_a_change_of_clocks_neither_skips_nor_doubles_a_tick(
    expression: str, tz: str, after: str, expected: list[str]
) -> None:
    entry = schedule(expression, tz)

    ticks = instants(entry, after=utc(after))  # type: ignore[arg-type]

    assert [utc(text) for text in expected] == [next(ticks) for _ in expected]


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        (MissedRuns.SKIP, []),
        (MissedRuns.ONE, ["2026-03-01T03:00"]),
        (MissedRuns.ALL, ["2026-03-01T01:00", "2026-03-01T02:00", "2026-03-01T03:00"]),
    ],
)
def test_missed_ticks_follow_the_policy_of_the_schedule(
    missed: MissedRuns, expected: list[str]
) -> None:
    entry = schedule("0 * * * *", "UTC", missed)

    due = due_instants(entry, last=utc("2026-03-01T00:00"), now=utc("2026-03-01T03:30"))  # type: ignore[arg-type]

    assert [utc(text) for text in expected] == due


@pytest.mark.parametrize("missed", list(MissedRuns))
def test_a_tick_on_time_is_submitted_under_every_policy(missed: MissedRuns) -> None:
    entry = schedule("0 * * * *", "UTC", missed)

    due = due_instants(entry, last=utc("2026-03-01T00:00"), now=utc("2026-03-01T01:00:02"))  # type: ignore[arg-type]

    assert [utc("2026-03-01T01:00")] == due


class ReadTogether(StoreProxy):
    """All callers read the records of schedules before any of them goes on."""

    def __init__(self, inner: Store, callers: int) -> None:
        super().__init__(inner)
        self._barrier = asyncio.Barrier(callers)

    async def locks(self, prefix: str) -> list[NamedLock]:
        found = await super().locks(prefix)
        await self._barrier.wait()
        return found


async def test_any_number_of_workers_submit_one_job_per_tick() -> None:
    yard = Yard()

    @yard.app.cron("*/5 * * * *", missed="all")
    @yard.app.task("tick")
    async def tick() -> None: ...

    await yard.app.start()
    together = ReadTogether(yard.store, 5)
    services = [CronService(yard.app, together) for _ in range(5)]
    for _ in range(61):
        await asyncio.gather(*(service.once() for service in services))
        yard.clock.advance(60)

    jobs = (await yard.app.search(limit=1000)).jobs
    assert 12 == len(jobs)
    assert {"cron": "tick"} == jobs[0].tags


@pytest.mark.parametrize("workers", [1, 2])
async def test_ticks_between_two_first_records_of_a_schedule_are_not_lost(workers: int) -> None:
    yard = Yard()

    @yard.app.cron("*/5 * * * *", missed="all")
    @yard.app.task("tick")
    async def tick() -> None: ...

    await yard.app.start()
    services = [CronService(yard.app, yard.store) for _ in range(workers)]
    early, late = services[0], services[-1]
    yard.clock.advance(299)
    seen = yard.clock.now()
    yard.clock.advance(2)
    (schedule,) = await early._definitions.read()  # as both services see it
    await early._record_first(schedule, seen)  # a write that was decided before the tick
    await late._record_first(schedule, yard.clock.now())  # and one that was decided after it
    await late.once()

    assert 1 == len((await yard.app.search()).jobs)


async def ticks(yard: Yard, services: Sequence[CronService], count: int) -> int:
    """Serve schedules for some seconds; return how many jobs that made."""
    before = (await yard.store.find(Search())).total
    for _ in range(count):
        await asyncio.gather(*(service.once() for service in services))
        yard.clock.advance(1)
    return (await yard.store.find(Search())).total - before


async def test_schedules_go_on_once_per_tick_each_time_the_clock_is_set_back() -> None:
    yard = Yard()

    @yard.app.cron("* * * * * *")
    @yard.app.task("tick")
    async def tick() -> None: ...

    await yard.app.start()
    services = [CronService(yard.app, ReadTogether(yard.store, 1)) for _ in range(2)]

    assert 20 - 1 == await ticks(yard, services, 20)
    yard.clock.shift(-timedelta(hours=3))
    assert 20 - 2 <= await ticks(yard, services, 20) <= 20
    yard.clock.shift(-timedelta(seconds=15))  # in the middle of what came again
    assert 60 - 2 <= await ticks(yard, services, 60) <= 60
    yard.clock.shift(timedelta(hours=3) - timedelta(seconds=70))  # shortly before what it was
    assert 40 - 12 <= await ticks(yard, services, 40) <= 41


async def test_a_schedule_submits_and_its_job_runs() -> None:
    app = Holdfast(store=MemoryStore())
    ran = asyncio.Event()

    @app.cron("* * * * * *")
    @app.task("tick")
    async def tick() -> None:
        ran.set()

    async with working(app), working(app):
        await asyncio.wait_for(ran.wait(), 5)


async def test_one_worker_leads_and_another_takes_over() -> None:
    app = Holdfast(store=MemoryStore())

    @app.task("x")
    async def x() -> None: ...

    async with app, working(app):
        async with working(app):
            job = await app.submit("x", delay=0.2)
            assert State.COMPLETED is await ended(app, job.job_id)
        job = await app.submit("x", delay=0.2)
        assert State.COMPLETED is await ended(app, job.job_id, timeout=6)
