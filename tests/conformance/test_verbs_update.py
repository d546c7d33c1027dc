"""``amend``: metadata that changes after submission, in every state of the job."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from holdfast.model.job import TERMINAL, Priority, State
from holdfast.model.policy import Retention
from holdfast.store import AddStatus, Change, Order, Search, Swapped
from tests.conformance.hand import LEASE, MANY, fence, job_id

if TYPE_CHECKING:
    from holdfast.model.job import Job
    from tests.conformance.hand import Hand

pytestmark = pytest.mark.req("M-13")
URL = "https://example.com/done"


async def _amend(hand: Hand, job: Job, **fields: Any) -> Job:
    """Change a job's metadata, which is accepted."""
    after = replace(job, revision=job.revision + 1, **fields)
    assert [Swapped(written=True)] == await hand.store.amend([Change(job, after)])
    return await hand.get(job)


async def _found(hand: Hand, **search: Any) -> list[str]:
    page = await hand.store.find(Search(order=Order.CREATED_ASC, **search))
    assert len(page.jobs) == page.total
    return [job.type for job in page.jobs]


async def _tallies(hand: Hand) -> dict[tuple[int, State], int]:
    stats = await hand.store.stats(timedelta(hours=1))
    return {(tally.priority, tally.state): tally.count for tally in stats.tallies if tally.count}


async def _in_state(hand: Hand, state: State) -> Job:
    match state:
        case State.PENDING:
            return await hand.add("a", tags={"old": "1"}, hold=True)
        case State.DELAYED:
            return await hand.add("a", tags={"old": "1"}, delay=60)
        case State.RUNNING:
            return await hand.run("a", tags={"old": "1"})
        case State.RETRYING:
            return await hand.fail(await hand.run("a", tags={"old": "1"}))
        case _:
            job = await hand.add("a", tags={"old": "1"})
            return await hand.finish(job, state) if state in TERMINAL else job


@pytest.mark.parametrize("state", list(State))
async def test_only_the_metadata_changes_in_every_state(hand: Hand, state: State) -> None:
    job = await _in_state(hand, state)
    assert state is job.state
    history = await hand.store.history([job.id])
    new: dict[str, Any] = {
        "tags": {"new": "2", "other": ""},
        "correlation_id": "order-7",
        "callback_url": URL,
        "priority": Priority.BULK,
        "due_at": hand.clock.now() + timedelta(minutes=3),
    }

    amended = await _amend(hand, job, **new)

    assert replace(job, revision=job.revision + 1, **new) == amended
    assert history == await hand.store.history([job.id])


async def test_metadata_can_be_removed(hand: Hand) -> None:
    job = await hand.add("a", tags={"x": "1"}, correlation_id="c", callback_url=URL)

    amended = await _amend(hand, job, tags={}, correlation_id="", callback_url="")

    assert ({}, "", "") == (amended.tags, amended.correlation_id, amended.callback_url)
    assert [] == await _found(hand, tags={"x": "1"})
    assert [] == await _found(hand, correlation_id="c")


async def test_search_finds_the_new_metadata_and_not_the_old(hand: Hand) -> None:
    job = await hand.add("a", tags={"kept": "1", "old": "1"}, correlation_id="first")
    await hand.add("b", tags={"old": "1"}, correlation_id="first")

    await _amend(hand, job, tags={"kept": "1", "new": "1"}, correlation_id="second", priority=1)

    assert ["a"] == await _found(hand, tags={"new": "1"})
    assert ["a"] == await _found(hand, tags={"kept": "1"})
    assert ["b"] == await _found(hand, tags={"old": "1"})
    assert ["a"] == await _found(hand, correlation_id="second")
    assert ["b"] == await _found(hand, correlation_id="first")
    assert ["a"] == await _found(hand, priorities=(1,))
    assert ["b"] == await _found(hand, priorities=(2,))


async def test_deleted_job_leaves_no_trace_in_the_indexes(hand: Hand) -> None:
    key = {"idempotency_key": "k", "idempotency_window": 3600}
    job = await hand.add("a", tags={"old": "1"}, **key)
    amended = await _amend(hand, job, tags={"new": "1"}, correlation_id="c")
    await hand.complete(await hand.take(amended))

    assert [True] == await hand.store.delete([job.id])

    assert [] == await _found(hand, tags={"new": "1"})
    assert [] == await _found(hand, correlation_id="c")
    again = replace(hand.job("a", **key), id=job_id("again"))
    assert [AddStatus.DUPLICATE] == [a.status for a in await hand.try_add(again)]


async def test_counts_follow_the_priority(hand: Hand) -> None:
    job = await hand.add("a")
    await hand.add("b")

    raised = await _amend(hand, job, priority=Priority.CRITICAL)
    assert {(0, State.SCHEDULED): 1, (2, State.SCHEDULED): 1} == await _tallies(hand)
    raised = await _amend(hand, raised, tags={"x": "1"})
    assert {(0, State.SCHEDULED): 1, (2, State.SCHEDULED): 1} == await _tallies(hand)

    await hand.complete(await hand.take(raised))

    assert {(0, State.COMPLETED): 1, (2, State.SCHEDULED): 1} == await _tallies(hand)
    await hand.store.delete([job.id])
    assert {(2, State.SCHEDULED): 1} == await _tallies(hand)


@pytest.mark.parametrize("level", list(Priority))
async def test_ready_job_is_served_by_its_new_priority(hand: Hand, level: Priority) -> None:
    jobs = {p: await hand.add(p.name, priority=p.name) for p in reversed(Priority)}

    await _amend(hand, jobs[Priority.CRITICAL], priority=level)
    await _amend(hand, jobs[Priority.LOW], priority=Priority.CRITICAL)

    ranks = {p: int(p) for p in Priority} | {Priority.CRITICAL: int(level), Priority.LOW: 0}
    order = list(reversed(Priority))
    expected = sorted(Priority, key=lambda p: (ranks[p], order.index(p)))
    assert [p.name for p in expected] == await hand.drain()


@pytest.mark.parametrize("level", [Priority.CRITICAL, Priority.HIGH, Priority.BULK])
async def test_among_its_new_priority_a_job_keeps_the_place_of_its_time(
    hand: Hand, level: Priority
) -> None:
    jobs = []
    for n in range(9):
        priority = level if n % 3 == 1 else Priority.NORMAL if n % 3 else Priority.LOW
        jobs.append(await hand.add(f"j{n}", priority=priority.name))

    for n in (8, 0, 3, 5, 2, 6):
        await _amend(hand, jobs[n], priority=level)

    assert [f"j{n}" for n in range(9)] == await hand.drain()


@pytest.mark.parametrize("state", [State.PENDING, State.DELAYED, State.RETRYING])
async def test_waiting_job_has_its_new_priority_when_it_becomes_ready(
    hand: Hand, state: State
) -> None:
    job = await _in_state(hand, state)
    await hand.add("b", priority="HIGH")

    amended = await _amend(hand, job, priority=Priority.CRITICAL)
    if state is State.PENDING:
        await hand.release(amended)
        await hand.settle_dependents()
    hand.clock.advance(3600)
    await hand.store.promote(MANY)

    assert ["a", "b"] == await hand.drain()


@pytest.mark.parametrize("state", [State.DELAYED, State.RETRYING])
@pytest.mark.parametrize("shift", [-3600, -1, 0, 1, 7200])
async def test_waiting_job_becomes_ready_at_its_new_time(
    hand: Hand, state: State, shift: int
) -> None:
    job = await _in_state(hand, state)
    due = hand.clock.now() + timedelta(seconds=shift)

    amended = await _amend(hand, job, due_at=due)
    promoted = await hand.store.promote(MANY)
    early = (await hand.get(job)).state
    hand.clock.set(max(due, hand.clock.now()))
    await hand.store.promote(MANY)

    assert due == amended.due_at
    assert (State.SCHEDULED if shift <= 0 else state) == early
    assert (due if shift > 0 else None) == promoted.next_due
    assert ["a"] == await hand.drain()


async def test_pending_job_keeps_its_new_time_for_when_it_is_released(hand: Hand) -> None:
    job = await _in_state(hand, State.PENDING)

    amended = await _amend(hand, job, due_at=hand.clock.now() + timedelta(seconds=60))
    await hand.release(amended)
    await hand.settle_dependents()

    assert State.DELAYED is (await hand.get(job)).state
    hand.clock.advance(60)
    await hand.store.promote(MANY)
    assert ["a"] == await hand.drain()


async def test_jobs_become_ready_in_the_order_of_their_new_times(hand: Hand) -> None:
    jobs = [await hand.add(f"j{n}", delay=60 + n) for n in range(4)]
    start = hand.clock.now()

    for n, job in enumerate(jobs):
        await _amend(hand, job, due_at=start + timedelta(seconds=40 - 10 * n))
    hand.clock.advance(50)
    await hand.store.promote(MANY)

    assert ["j3", "j2", "j1", "j0"] == await hand.drain()


async def test_ageing_starts_from_the_new_priority(hand: Hand) -> None:
    minute = timedelta(minutes=1)
    await hand.store.configure("default", {"ageing": minute})
    job = await hand.add("a", priority="HIGH")
    await hand.add("b", priority="NORMAL")
    await hand.store.promote(MANY)

    await _amend(hand, job, priority=Priority.BULK)
    hand.clock.advance(minute)
    await hand.store.promote(MANY)

    assert ["b", "a"] == await hand.drain()


async def test_new_tags_leave_an_aged_job_in_its_place(hand: Hand) -> None:
    minute = timedelta(minutes=1)
    await hand.store.configure("default", {"ageing": minute})
    job = await hand.add("a", priority="LOW")
    hand.clock.advance(2 * minute)
    await hand.store.promote(MANY)
    await hand.add("b", priority="HIGH")

    await _amend(hand, job, tags={"x": "1"})

    assert ["a", "b"] == await hand.drain()


async def test_lease_of_a_running_job_stays(hand: Hand) -> None:
    running = await hand.run("a")

    amended = await _amend(hand, running, tags={"x": "1"})

    assert running.lease == amended.lease
    (renewal,) = await hand.store.extend([fence(running)])
    assert renewal.held
    hand.clock.advance(LEASE - timedelta(seconds=1))
    assert [] == await hand.store.overdue(MANY)
    done = await hand.complete(await hand.get(running))
    assert (State.COMPLETED, {"x": "1"}) == (done.state, done.tags)


async def test_outcome_decided_before_is_decided_again_and_keeps_the_new_metadata(
    hand: Hand,
) -> None:
    running = await hand.run("a", tags={"old": "1"})
    amended = await _amend(hand, running, tags={"new": "1"})

    answer = await hand.try_swap(running, replace(running, revision=running.revision + 1))

    assert Swapped(written=False, job=amended) == answer
    assert {"new": "1"} == (await hand.complete(amended)).tags


@pytest.mark.req("S-5")
async def test_change_decided_on_an_older_revision_is_not_written(hand: Hand) -> None:
    job = await hand.add("a", tags={"x": "1"})
    running = await hand.take(job)
    late = replace(job, revision=job.revision + 1, tags={"y": "1"}, priority=0)

    answers = await hand.store.amend([Change(job, late)])

    assert [Swapped(written=False, job=running)] == answers
    assert running == await hand.get(job)
    assert {(2, State.RUNNING): 1} == await _tallies(hand)


async def test_unknown_job_is_not_written(hand: Hand) -> None:
    job = hand.job("a")

    assert [Swapped(written=False)] == await hand.store.amend([Change(job, job)])
    assert [] == await hand.store.amend([])


async def test_second_change_of_a_call_sees_the_first(hand: Hand) -> None:
    job = await hand.add("a")
    first = replace(job, revision=job.revision + 1, tags={"x": "1"})
    second = replace(first, revision=first.revision + 1, priority=Priority.HIGH)

    answers = await hand.store.amend([Change(job, first), Change(first, second)])

    assert [Swapped(written=True)] * 2 == answers
    assert second == await hand.get(job)
    assert ["a"] == await _found(hand, tags={"x": "1"})


async def test_pruned_job_leaves_no_trace_in_the_indexes(hand: Hand) -> None:
    job = await hand.finish(await hand.add("a", tags={"old": "1"}), State.COMPLETED)
    await _amend(hand, job, tags={"new": "1"}, priority=Priority.LOW)
    hand.clock.advance(timedelta(days=400))

    assert 1 == await hand.store.prune(Retention(), MANY)

    assert [] == await _found(hand, tags={"new": "1"})
    assert {} == await _tallies(hand)
