"""The verbs of maintenance: ``promote``, ``overdue``, ``prune``, ``delete`` and ``lock``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.model.job import Event, Priority, State
from holdfast.model.policy import Retention
from holdfast.store import NamedLock, Promoted, Search
from tests.conformance.hand import LEASE, MANY, TICK, fence, job_id

if TYPE_CHECKING:
    from tests.conformance.hand import Hand

SECOND = timedelta(seconds=1)
ENDS = [State.COMPLETED, State.FAILED, State.DEAD_LETTER, State.CANCELLED]


# --- promote --------------------------------------------------------------------------------


@pytest.mark.req("S-11", "M-3")
async def test_delayed_job_is_ready_exactly_when_its_time_has_come(hand: Hand) -> None:
    job = await hand.add("a", delay=10)
    assert job.due_at is not None

    hand.clock.set(job.due_at - TICK)
    assert Promoted(0, job.due_at) == await hand.store.promote(MANY)
    hand.clock.set(job.due_at)
    assert Promoted(1, None) == await hand.store.promote(MANY)

    ready = await hand.get(job)
    assert (State.SCHEDULED, hand.now) == (ready.state, ready.scheduled_at)
    assert job.revision + 1 == ready.revision
    (history,) = await hand.store.history([job.id])
    assert (Event.DUE, State.DELAYED, hand.now) == (
        history[-1].event,
        history[-1].from_state,
        history[-1].at,
    )


async def test_promote_returns_when_the_next_job_is_due(hand: Hand) -> None:
    assert Promoted(0, None) == await hand.store.promote(MANY)
    await hand.add("late", delay=20)
    soon = await hand.add("soon", delay=10)

    assert Promoted(0, soon.due_at) == await hand.store.promote(MANY)


async def test_promote_stops_at_its_limit_and_returns_the_next_due_time(hand: Hand) -> None:
    jobs = [await hand.add(f"n{n}", delay=10 - n) for n in range(4)]
    hand.clock.advance(10)

    assert Promoted(3, jobs[0].due_at) == await hand.store.promote(3)
    assert Promoted(1, None) == await hand.store.promote(3)


@pytest.mark.req("S-3")
async def test_promoted_jobs_are_served_by_due_time_then_by_submission(hand: Hand) -> None:
    await hand.add("third", delay=9)
    await hand.add("fourth", delay=9)
    await hand.add("first", delay=7)
    await hand.add("second", delay=8)
    hand.clock.advance(10)

    await hand.store.promote(MANY)

    assert ["first", "second", "third", "fourth"] == await hand.drain()


@pytest.mark.req("S-3", "M-4")
async def test_promoted_jobs_go_behind_ready_ones_of_their_priority(hand: Hand) -> None:
    await hand.add("due", delay=1)
    await hand.add("due.urgent", delay=1, priority=Priority.HIGH)
    hand.clock.advance(5)
    await hand.add("ready")

    await hand.store.promote(MANY)

    assert ["due.urgent", "ready", "due"] == await hand.drain()


async def test_promote_twice_changes_nothing_more(hand: Hand) -> None:
    job = await hand.add("a", delay=1)
    hand.clock.advance(1)
    await hand.store.promote(MANY)
    before = await hand.get(job)

    assert Promoted(0, None) == await hand.store.promote(MANY)
    assert before == await hand.get(job)


@pytest.mark.req("M-4")
async def test_job_in_an_ageing_queue_is_lifted_by_one_level_per_full_interval(
    hand: Hand,
) -> None:
    await hand.store.configure("default", {"ageing": 10 * SECOND})
    old = await hand.add("old", priority=Priority.LOW)
    hand.clock.advance(10 * SECOND - TICK)
    await hand.add("normal")
    await hand.store.promote(MANY)
    assert ["normal"] == [job.type for job in await hand.claim()]
    hand.clock.advance(TICK)
    await hand.add("normal.2")

    await hand.store.promote(MANY)

    assert ["old", "normal.2"] == await hand.drain()
    assert Priority.LOW == (await hand.get(old)).priority


@pytest.mark.req("M-4")
async def test_ageing_ends_at_the_top(hand: Hand) -> None:
    await hand.store.configure("default", {"ageing": SECOND})
    await hand.add("bulk", priority=Priority.BULK)
    await hand.add("critical", priority=Priority.CRITICAL)
    hand.clock.advance(100)

    await hand.store.promote(MANY)

    assert ["bulk", "critical"] == await hand.drain()


@pytest.mark.req("M-4")
async def test_lifted_jobs_stand_in_the_order_in_which_they_became_ready(hand: Hand) -> None:
    await hand.store.configure("default", {"ageing": SECOND})
    await hand.add("first.submitted", delay=10)
    hand.clock.advance(10)
    await hand.add("first.ready", priority=Priority.CRITICAL)
    await hand.store.promote(MANY)
    await hand.add("last.ready", priority=Priority.CRITICAL)
    hand.clock.advance(100)

    await hand.store.promote(MANY)

    assert ["first.ready", "first.submitted", "last.ready"] == await hand.drain()


@pytest.mark.req("M-4")
async def test_job_that_aged_in_a_paused_queue_is_served_in_its_place(hand: Hand) -> None:
    await hand.store.configure("default", {"ageing": SECOND, "paused": True})
    await hand.add("bulk", priority=Priority.BULK)
    await hand.add("critical", priority=Priority.CRITICAL)
    hand.clock.advance(100)
    await hand.store.promote(MANY)

    await hand.store.configure("default", {"paused": False})

    assert ["bulk", "critical"] == await hand.drain()


@pytest.mark.req("M-4")
async def test_job_ages_only_in_a_queue_with_ageing(hand: Hand) -> None:
    await hand.store.configure("other", {"ageing": SECOND})
    await hand.add("bulk", priority=Priority.BULK)
    hand.clock.advance(10**5)
    await hand.add("normal")

    await hand.store.promote(MANY)

    assert ["normal", "bulk"] == await hand.drain()


@pytest.mark.req("M-4")
async def test_job_that_comes_back_starts_ageing_anew(hand: Hand) -> None:
    await hand.store.configure("default", {"ageing": 10 * SECOND})
    await hand.add("old", priority=Priority.LOW)
    hand.clock.advance(20)
    await hand.store.promote(MANY)
    (old,) = await hand.claim()
    await hand.give_back(old)
    await hand.add("normal")

    await hand.store.promote(MANY)

    assert ["normal", "old"] == await hand.drain()


# --- overdue --------------------------------------------------------------------------------


@pytest.mark.req("S-6", "S-11")
async def test_running_job_is_overdue_exactly_when_its_lease_has_ended(hand: Hand) -> None:
    running = await hand.run("a")

    hand.clock.advance(LEASE - TICK)
    assert [] == await hand.store.overdue(MANY)
    hand.clock.advance(TICK)
    assert [running] == await hand.store.overdue(MANY)


@pytest.mark.req("S-6", "S-5")
async def test_renewed_job_is_overdue_when_its_new_lease_has_ended(hand: Hand) -> None:
    running = await hand.run("a")
    assert running.lease is not None
    hand.clock.advance(10)
    await hand.store.extend([fence(running)])

    hand.clock.advance(LEASE - TICK)
    assert [] == await hand.store.overdue(MANY)
    hand.clock.advance(TICK)
    assert [running.id] == [job.id for job in await hand.store.overdue(MANY)]


@pytest.mark.req("L-6", "M-6")
@pytest.mark.parametrize(
    "situation", ["ready", "delayed", "held", "waiting", "running", "retrying"]
)
async def test_live_job_is_overdue_exactly_when_its_lifetime_is_over(
    hand: Hand, situation: str
) -> None:
    parent = await hand.add("parent", lifetime=10**6)
    fields: dict[str, dict[str, object]] = {
        "delayed": {"delay": 50},
        "held": {"hold": True},
        "waiting": {"after": [parent]},
    }
    job = await hand.add("a", lifetime=60, lease=10**4, **fields.get(situation, {}))
    if situation in ("running", "retrying"):
        job = await hand.take(job)
    if situation == "retrying":
        job = await hand.fail(job)

    hand.clock.advance(60 - TICK.total_seconds())
    assert [] == await hand.store.overdue(MANY)
    hand.clock.advance(TICK)
    assert [job] == await hand.store.overdue(MANY)


@pytest.mark.req("L-6")
@pytest.mark.parametrize("end", ENDS)
async def test_ended_job_is_never_overdue(hand: Hand, end: State) -> None:
    await hand.finish(await hand.add("a", lifetime=60), end)

    hand.clock.advance(10**5)

    assert [] == await hand.store.overdue(MANY)


@pytest.mark.req("S-6")
async def test_overdue_jobs_come_earliest_first_up_to_the_limit(hand: Hand) -> None:
    await hand.add("third", lifetime=60)
    await hand.run("second", lease=20)
    await hand.run("first", lease=10)
    await hand.run("later", lease=10**4)
    hand.clock.advance(100)

    found = [job.type for job in await hand.store.overdue(MANY)]
    few = [job.type for job in await hand.store.overdue(2)]

    assert ["first", "second", "third"] == found
    assert ["first", "second"] == few


async def test_overdue_changes_nothing(hand: Hand) -> None:
    running = await hand.run("a")
    hand.clock.advance(2 * LEASE)

    await hand.store.overdue(MANY)

    assert running == await hand.get(running)


# --- prune and delete -----------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
async def test_ended_job_is_pruned_exactly_when_it_is_old_enough(hand: Hand, end: State) -> None:
    job = await hand.finish(await hand.add("a"), end)
    kept = Retention(**{str(end).lower(): 100 * SECOND})

    hand.clock.advance(100 * SECOND - TICK)
    assert 0 == await hand.store.prune(kept, MANY)
    hand.clock.advance(TICK)
    assert 1 == await hand.store.prune(kept, MANY)

    assert [None] == await hand.store.get([job.id])
    assert [[]] == await hand.store.history([job.id])
    assert 0 == (await hand.store.find(Search())).total
    assert () == (await hand.store.stats(SECOND)).tallies


@pytest.mark.parametrize("end", ENDS)
async def test_retention_of_none_keeps_jobs_for_ever(hand: Hand, end: State) -> None:
    await hand.finish(await hand.add("a"), end)
    hand.clock.advance(10**8)

    assert 0 == await hand.store.prune(Retention(**{str(end).lower(): None}), MANY)


async def test_oldest_jobs_are_pruned_first_up_to_the_limit(hand: Hand) -> None:
    jobs = [await hand.add(name) for name in "abc"]
    for job in reversed(jobs):
        await hand.finish(job, State.COMPLETED)
        hand.clock.advance(1)

    assert 2 == await hand.store.prune(Retention(completed=timedelta(0)), 2)

    assert ["a"] == [job.type for job in await hand.get_all(*jobs)]


async def test_live_jobs_are_never_pruned(hand: Hand) -> None:
    await hand.add("ready")
    await hand.add("delayed", delay=5)
    await hand.run("running", queue="other")
    hand.clock.advance(10**8)

    assert 0 == await hand.store.prune(Retention(completed=timedelta(0)), MANY)


async def test_reopened_job_is_not_pruned_by_its_former_end(hand: Hand) -> None:
    await hand.reopen(await hand.finish(await hand.add("a"), State.FAILED))
    hand.clock.advance(10**8)

    assert 0 == await hand.store.prune(Retention(failed=timedelta(0)), MANY)


async def test_deleted_job_is_gone_from_every_read(hand: Hand) -> None:
    job = await hand.finish(await hand.add("a"), State.FAILED)

    assert [True] == await hand.store.delete([job.id])

    assert [None] == await hand.store.get([job.id])
    assert [[]] == await hand.store.history([job.id])
    assert 0 == (await hand.store.find(Search())).total
    assert () == (await hand.store.stats(SECOND)).tallies
    assert [] == await hand.store.queues()


async def test_delete_answers_false_for_live_unknown_and_repeated_ids(hand: Hand) -> None:
    live = await hand.add("live")
    ended = await hand.finish(await hand.add("ended"), State.COMPLETED)

    answers = await hand.store.delete([live.id, job_id("nobody"), ended.id, ended.id])

    assert [False, False, True, False] == answers
    assert live == await hand.get(live)


# --- lock -----------------------------------------------------------------------------------


async def test_lock_is_exclusive_until_it_expires(hand: Hand) -> None:
    store = hand.store
    assert await store.lock("leader", "a", 10 * SECOND)

    hand.clock.advance(10 * SECOND - TICK)
    assert not await store.lock("leader", "b", 10 * SECOND)
    hand.clock.advance(TICK)
    assert await store.lock("leader", "b", 10 * SECOND)
    assert not await store.lock("leader", "a", 10 * SECOND)


async def test_holder_renews_its_own_lock(hand: Hand) -> None:
    await hand.store.lock("leader", "a", 10 * SECOND, b"one")
    hand.clock.advance(5)

    assert await hand.store.lock("leader", "a", 10 * SECOND, b"two\x00")

    expected = NamedLock("leader", "a", hand.now + 10 * SECOND, b"two\x00")
    assert [expected] == await hand.store.locks("leader")


async def test_lock_with_zero_ttl_is_released(hand: Hand) -> None:
    await hand.store.lock("leader", "a", 10 * SECOND)

    await hand.store.lock("leader", "a", timedelta(0))

    assert [] == await hand.store.locks("")
    assert await hand.store.lock("leader", "b", SECOND)


async def test_releasing_a_lock_of_another_holder_changes_nothing(hand: Hand) -> None:
    await hand.store.lock("leader", "a", 10 * SECOND)

    assert not await hand.store.lock("leader", "b", timedelta(0))

    assert ["a"] == [lock.holder for lock in await hand.store.locks("leader")]


@pytest.mark.parametrize("back", [timedelta(hours=3), TICK])
async def test_lock_that_outlasts_its_ttl_since_the_clock_was_set_back_is_free(
    hand: Hand, back: timedelta
) -> None:
    await hand.store.lock("leader", "a", SECOND)

    hand.clock.advance(-back)

    assert not await hand.store.lock("leader", "b", timedelta(0))
    assert await hand.store.lock("leader", "b", SECOND)
    assert not await hand.store.lock("leader", "a", SECOND)


async def test_unexpired_locks_are_listed_by_prefix_and_name(hand: Hand) -> None:
    for name in ("worker:b", "worker_a", "worker:a", "leader", "worker:%"):
        await hand.store.lock(name, name, 10 * SECOND)
    await hand.store.lock("worker:c", "c", SECOND)
    hand.clock.advance(SECOND)

    found = [lock.name for lock in await hand.store.locks("worker:")]

    assert ["worker:%", "worker:a", "worker:b"] == found
    assert ["worker_a"] == [lock.name for lock in await hand.store.locks("worker_")]
