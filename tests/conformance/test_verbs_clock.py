"""The store's clock is set back or forward by hours: jobs go on, and live holders keep theirs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.maintenance.clock import ClockService, StoreClock
from holdfast.maintenance.reaper import Reaper
from holdfast.model.job import State
from holdfast.model.status import job_status
from holdfast.model.workers import LEADERSHIP, WorkerInfo
from holdfast.observe import Silent
from holdfast.operations.workers import TERM, announce, is_led, workers
from holdfast.runtime.randomness import Randomness
from tests.conformance.hand import LEASE, MANY, TICK, fence

if TYPE_CHECKING:
    from holdfast.model.job import Job
    from tests.conformance.hand import Hand

HOURS = timedelta(hours=3)
SECOND = timedelta(seconds=1)


@pytest.fixture
def watch(hand: Hand) -> StoreClock:
    """What a process knows of the store's clock from before it is set."""
    watch = StoreClock(hand.store, hand.clock)
    watch.look()
    return watch


@pytest.fixture
def service(hand: Hand, watch: StoreClock) -> ClockService:
    return ClockService(hand.store, hand.clock, watch, Silent())


@pytest.fixture
def reaper(hand: Hand, watch: StoreClock) -> Reaper:
    return Reaper(hand.store, Randomness(1), Silent(), clock=watch)


async def until(hand: Hand, job: Job) -> timedelta:
    """How long the lease of a job lasts from now."""
    lease = (await hand.get(job)).lease
    assert lease is not None
    assert lease.until is not None
    return lease.until - hand.now


async def test_lease_of_a_dead_worker_ends_one_term_after_the_clock_was_set_back(
    hand: Hand, service: ClockService, reaper: Reaper
) -> None:
    job = await hand.run("a")
    hand.clock.shift(-HOURS)

    await service.once()

    assert LEASE == await until(hand, job)
    hand.clock.advance(LEASE)
    await reaper.once()
    assert State.RETRYING is (await hand.get(job)).state


async def test_leader_that_starts_after_the_clock_was_set_back_corrects_leases(hand: Hand) -> None:
    job = await hand.run("a")
    hand.clock.shift(-HOURS)
    watch = StoreClock(hand.store, hand.clock)

    await ClockService(hand.store, hand.clock, watch, Silent()).once()

    assert LEASE == await until(hand, job)


async def test_leases_stay_as_they_are_while_the_clock_goes_on(
    hand: Hand, service: ClockService
) -> None:
    job = await hand.run("a")
    hand.clock.advance(10)

    await service.once()

    assert LEASE - 10 * SECOND == await until(hand, job)


async def test_delay_and_backoff_start_again_when_the_clock_was_set_back(
    hand: Hand, service: ClockService
) -> None:
    delayed = await hand.add("delayed", delay=60)
    retrying = await hand.fail(await hand.run("retrying"))
    assert retrying.due_at is not None
    backoff = retrying.due_at - hand.now
    hand.clock.advance(1)
    hand.clock.shift(-HOURS)

    await service.once()
    await service.correct()  # changes nothing more

    due = [(await hand.get(job)).due_at for job in (delayed, retrying)]
    assert [hand.now + 60 * SECOND, hand.now + backoff] == due
    hand.clock.advance(60 * SECOND + backoff)
    assert 2 == (await hand.store.promote(MANY)).count


async def test_job_for_an_instant_waits_for_that_instant(hand: Hand, service: ClockService) -> None:
    at = hand.now + 60 * SECOND
    job = await hand.add("a", scheduled_at=at)
    hand.clock.shift(-HOURS)

    await service.once()

    assert at == (await hand.get(job)).due_at
    hand.clock.advance(HOURS + 60 * SECOND - TICK)
    assert 0 == (await hand.store.promote(MANY)).count
    hand.clock.advance(TICK)
    assert 1 == (await hand.store.promote(MANY)).count


async def test_ready_job_is_claimed_at_the_time_that_the_clock_shows(hand: Hand) -> None:
    ready = await hand.add("a")
    waiting = await hand.add("b", delay=1)
    hand.clock.advance(2)
    hand.clock.shift(-HOURS)

    taken = await hand.take(ready)
    hand.clock.shift(HOURS)
    await hand.store.promote(MANY)
    hand.clock.shift(-HOURS)
    promoted = await hand.take(await hand.get(waiting))

    for job in (taken, promoted):
        assert job.lease is not None
        assert (hand.now, hand.now, hand.now + LEASE) == (
            job.started_at,
            job.updated_at,
            job.lease.until,
        )


async def test_lease_that_the_clock_skipped_is_kept_for_its_live_holder(
    hand: Hand, reaper: Reaper
) -> None:
    job = await hand.run("a")
    hand.clock.shift(HOURS)

    await reaper.once()

    assert job.revision == (await hand.get(job)).revision
    hand.clock.advance(LEASE - SECOND)
    assert (await hand.store.extend([fence(job)]))[0].held
    await reaper.once()
    assert State.RUNNING is (await hand.get(job)).state


async def test_job_of_a_dead_worker_is_recovered_one_term_after_the_clock_was_set_forward(
    hand: Hand, reaper: Reaper
) -> None:
    job = await hand.run("a")
    hand.clock.shift(HOURS)
    await reaper.once()
    hand.clock.advance(LEASE)

    await reaper.once()

    assert State.RETRYING is (await hand.get(job)).state


async def test_lease_that_had_ended_before_the_clock_was_set_is_reaped_at_once(
    hand: Hand, watch: StoreClock, reaper: Reaper
) -> None:
    job = await hand.run("a")
    hand.clock.advance(LEASE)
    watch.look()
    hand.clock.shift(HOURS)

    await reaper.once()

    assert State.RETRYING is (await hand.get(job)).state


async def test_dead_workers_and_leaders_are_not_listed_for_hours(hand: Hand) -> None:
    await hand.store.lock(LEADERSHIP, "w1", TERM)
    info = WorkerInfo(
        id="w1",
        host="h",
        pid=1,
        queues=("default",),
        types=(),
        slots=1,
        running=0,
        started_at=hand.now,
    )
    await announce(hand.store, info)
    assert await is_led(hand.store)
    assert ["w1"] == [worker.id for worker in await workers(hand.store)]

    hand.clock.shift(-HOURS)

    assert not await is_led(hand.store)
    assert [] == await workers(hand.store)


async def test_nothing_takes_less_than_no_time(hand: Hand) -> None:
    ready = [await hand.add(label) for label in ("completes", "fails", "waits")]
    completes, fails = [await hand.take(job) for job in ready[:2]]
    hand.clock.shift(-HOURS)

    completed = await hand.complete(completes)
    failed = await hand.fail(fails)
    await hand.take(ready[2])

    result = job_status(completed).result
    assert result is not None
    assert 0 == result.duration_ms
    assert failed.failure is not None
    assert timedelta(0) == failed.failure.duration
    readings = (await hand.store.stats(timedelta(hours=1))).readings
    assert {"run", "wait"} <= {reading.measure for reading in readings}
    assert all(reading.top >= 0 for reading in readings)
    assert all(reading.bucket >= 0 for reading in readings)
