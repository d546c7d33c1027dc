"""What each decision leaves behind once it is swapped in: place, time, generation, end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model.job import Event, FailureCategory, Priority, State
from holdfast.store import Change
from tests.conformance.decisions import DECISIONS
from tests.conformance.hand import MANY, TICK

if TYPE_CHECKING:
    from holdfast.model.job import Job
    from tests.conformance.hand import Hand


@pytest.fixture
async def running(hand: Hand) -> Job:
    """A job that has just been claimed."""
    return await hand.run("a")


@pytest.mark.req("M-7", "S-3")
async def test_retry_waits_for_its_due_time_and_then_queues_behind_ready_jobs(
    hand: Hand, running: Job
) -> None:
    failed = await hand.fail(running)
    await hand.add("b")
    assert failed.due_at is not None

    hand.clock.set(failed.due_at - TICK)
    await hand.store.promote(MANY)
    assert State.RETRYING is (await hand.get(running)).state
    hand.clock.set(failed.due_at)
    await hand.store.promote(MANY)

    assert ["b", "a"] == await hand.drain()


@pytest.mark.req("S-10")
async def test_job_that_was_given_back_is_ready_at_once_with_its_attempt_unused(
    hand: Hand, running: Job
) -> None:
    await hand.add("b")

    back = await hand.give_back(running)

    assert (State.SCHEDULED, 0, 1) == (back.state, back.attempt, back.lease_version)
    assert ["b", "a"] == await hand.drain()
    again = await hand.get(running)
    assert (1, 2) == (again.attempt, again.lease_version)


@pytest.mark.req("A-11", "L-3")
@pytest.mark.parametrize("situation", ["ready", "delayed", "held", "waiting", "retrying"])
async def test_cancelled_job_is_out_of_every_line(hand: Hand, situation: str) -> None:
    parent = await hand.add("parent", queue="other")
    fields: dict[str, dict[str, object]] = {
        "delayed": {"delay": 5},
        "held": {"hold": True},
        "waiting": {"after": [parent]},
    }
    job = await hand.add("a", **fields.get(situation, {}))
    if situation == "retrying":
        job = await hand.fail(await hand.take(job))

    cancelled = await hand.cancel(job)

    assert State.CANCELLED is cancelled.state
    hand.clock.advance(10**6)
    assert 0 == (await hand.store.promote(MANY)).count
    assert [] == await hand.drain()
    assert cancelled.id not in [late.id for late in await hand.store.overdue(MANY)]


async def test_ended_returns_only_jobs_that_have_ended(hand: Hand) -> None:
    ends = [State.COMPLETED, State.FAILED, State.DEAD_LETTER, State.CANCELLED]
    ended = [await hand.finish(await hand.add(state), state) for state in ends]
    live = [await hand.add("ready"), await hand.run("running"), await hand.add("late", delay=5)]
    ids = [job.id for job in [*ended, *live]]

    assert {job.id for job in ended} == await hand.store.ended([*ids, "unknown"])
    assert set() == await hand.store.ended([])


@pytest.mark.req("A-13")
async def test_many_jobs_are_cancelled_in_one_call_each_with_its_own_answer(hand: Hand) -> None:
    ready, running = await hand.add("ready"), await hand.run("running")
    done = await hand.complete(await hand.run("done"))
    stale = replace(ready, id=done.id)

    answers = await hand.store.swap(
        [Change(job, DECISIONS["cancel"](job, hand.now)) for job in (ready, stale, running)]
    )

    assert [True, False, True] == [answer.written for answer in answers]
    after = await hand.get_all(ready, done, running)
    assert [State.CANCELLED, State.COMPLETED, State.RUNNING] == [job.state for job in after]
    assert after[2].cancel is not None


@pytest.mark.req("A-12")
async def test_cancel_request_changes_the_revision_so_that_no_retry_overwrites_it(
    hand: Hand, running: Job
) -> None:
    requested = await hand.cancel(running, force=True)

    stale = await hand.try_swap(running, DECISIONS["fail"](running, hand.now))
    ended = await hand.fail(requested)

    assert not stale.written
    assert requested.cancel is not None
    assert requested.cancel.force
    assert (State.CANCELLED, requested.cancel) == (ended.state, ended.cancel)


@pytest.mark.req("A-16", "M-10")
async def test_reopened_job_is_a_new_generation_and_keeps_its_record(
    hand: Hand, running: Job
) -> None:
    failed = await hand.fail(running, FailureCategory.PERMANENT)

    reopened = await hand.reopen(failed, reset_attempts=True, priority=Priority.CRITICAL)

    assert (State.SCHEDULED, 2, 0, 0) == (
        reopened.state,
        reopened.generation,
        reopened.attempt,
        reopened.priority,
    )
    again = await hand.take(reopened)
    assert (1, 2) == (again.attempt, again.lease_version)
    (history,) = await hand.store.history([running.id])
    assert [Event.FAIL, Event.REOPEN, Event.CLAIM] == [edge.event for edge in history[-3:]]


@pytest.mark.req("A-16")
async def test_reopened_job_is_served_by_its_new_priority(hand: Hand, running: Job) -> None:
    failed = await hand.fail(running, FailureCategory.PERMANENT)
    await hand.add("b", priority="HIGH")

    await hand.reopen(failed, priority=Priority.CRITICAL)

    assert ["a", "b"] == await hand.drain()


@pytest.mark.req("A-16")
async def test_reopened_job_with_a_delay_waits_for_it(hand: Hand, running: Job) -> None:
    failed = await hand.fail(running, FailureCategory.PERMANENT)

    await hand.reopen(failed, delay=10 * TICK)

    assert [] == await hand.drain()
    hand.clock.advance(10 * TICK)
    await hand.store.promote(MANY)
    assert ["a"] == await hand.drain()


@pytest.mark.req("L-6", "L-3")
async def test_job_whose_lifetime_ended_is_a_dead_letter_and_stays_one(hand: Hand) -> None:
    job = await hand.add("a", lifetime=60)
    hand.clock.advance(60)

    dead = await hand.expire(job)

    assert State.DEAD_LETTER is dead.state
    assert dead.failure is not None
    assert "LIFETIME_EXCEEDED" == dead.failure.code
    assert [] == await hand.store.overdue(MANY)
    assert [] == await hand.drain()
