"""Running jobs that wait for the jobs they spawned."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.model import children, lifecycle
from holdfast.model.job import DependencyKind, Job, State
from holdfast.model.policy import Retention
from holdfast.store.values import Change, Swapped
from tests.conformance.hand import MANY, fence

if TYPE_CHECKING:
    from tests.conformance.hand import Hand

ALL, STRICT = DependencyKind.AFTER_ALL, DependencyKind.AFTER
KINDS = [ALL, STRICT]

pytestmark = pytest.mark.req("M-9")


async def _wait(hand: Hand, job: Job, kind: DependencyKind = ALL) -> Swapped:
    return await hand.try_swap(job, children.waiting(job, kind, now=hand.now))


@pytest.mark.parametrize("kind", KINDS)
async def test_job_waits_until_its_children_have_ended(hand: Hand, kind: DependencyKind) -> None:
    job = await hand.run("job")
    first, second = await hand.spawn("first", job), await hand.spawn("second", job)

    answer = await _wait(hand, job, kind)

    assert (True, False) == (answer.written, answer.has_dependents)
    waiting = await hand.get(job)
    assert (State.PENDING, 0, kind) == (waiting.state, waiting.attempt, waiting.dependency_kind)
    await hand.finish(first, State.COMPLETED)
    assert [] == await hand.store.dependents(MANY)
    await hand.finish(second, State.COMPLETED)
    assert ["job"] == await hand.settle_dependents()
    again = await hand.take(await hand.get(job))
    assert (1, 2) == (again.attempt, again.lease_version)


async def test_children_are_returned_in_order_without_grandchildren(hand: Hand) -> None:
    job = await hand.run("job")
    ids = [(await hand.spawn(f"child{n}", job)).id for n in range(3)]
    child = await hand.take((await hand.store.get(ids[:1]))[0] or job)
    await hand.spawn("grandchild", child)

    assert ids == await hand.store.children(job.id)
    assert [] == await hand.store.children(ids[2])
    assert [] == await hand.store.children("unknown")


async def test_job_whose_children_have_ended_is_due_at_once(hand: Hand) -> None:
    job = await hand.run("job")
    child = await hand.spawn("child", job)
    await hand.finish(child, State.FAILED)

    answer = await _wait(hand, job)

    assert (True, True) == (answer.written, answer.has_dependents)
    (found,) = await hand.store.dependents(MANY)
    assert ((child.id, State.FAILED),) == found.parents
    assert ["job"] == await hand.settle_dependents()


async def test_job_without_children_is_due_at_once(hand: Hand) -> None:
    job = await hand.run("job")

    answer = await _wait(hand, job)

    assert (True, True) == (answer.written, answer.has_dependents)
    assert ["job"] == await hand.settle_dependents()
    assert ["job"] == await hand.drain()


@pytest.mark.parametrize("end", [State.FAILED, State.DEAD_LETTER, State.CANCELLED])
async def test_failed_child_counts_by_the_kind(hand: Hand, end: State) -> None:
    lenient, strict = await hand.run("lenient"), await hand.run("strict")
    one, two = await hand.spawn("one", lenient), await hand.spawn("two", strict)
    other, another = await hand.spawn("other", lenient), await hand.spawn("another", strict)
    await _wait(hand, lenient, ALL)
    await _wait(hand, strict, STRICT)

    await hand.finish(one, end)
    await hand.finish(two, end)
    await hand.settle_dependents()

    assert (State.PENDING, end) == (
        (await hand.get(lenient)).state,
        (await hand.get(strict)).state,
    )
    await hand.finish(other, State.COMPLETED)
    await hand.finish(another, State.COMPLETED)
    assert ["lenient"] == await hand.settle_dependents()


async def test_job_waits_for_its_children_several_times(hand: Hand) -> None:
    job = await hand.run("job")
    for step in ("first", "second", "third"):
        child = await hand.spawn(step, job)
        await _wait(hand, job)
        assert [] == await hand.store.dependents(MANY)
        await hand.finish(child, State.FAILED if step == "first" else State.COMPLETED)
        assert ["job"] == await hand.settle_dependents()
        job = await hand.take(await hand.get(job))

    assert (1, 4) == (job.attempt, job.lease_version)
    assert 3 == len(await hand.store.parents(job.id))
    await hand.complete(job)


async def test_nested_waits_end_from_the_inside(hand: Hand) -> None:
    outer = await hand.run("outer")
    inner = await hand.take(await hand.spawn("inner", outer))
    leaf = await hand.spawn("leaf", inner)
    await _wait(hand, outer)
    await _wait(hand, inner)

    await hand.finish(leaf, State.COMPLETED)

    assert ["inner"] == await hand.settle_dependents()
    await hand.complete(await hand.take(await hand.get(inner)))
    assert ["outer"] == await hand.settle_dependents()


@pytest.mark.parametrize("kind", ["AFTER", "AFTER_ANY", "AFTER_ALL", "FAN_IN"])
async def test_dependencies_of_before_count_no_longer(hand: Hand, kind: str) -> None:
    parent = await hand.finish(
        await hand.add("p"), State.COMPLETED if kind in ("AFTER", "FAN_IN") else State.FAILED
    )
    job = await hand.add("job", after=[parent], dependency_type=kind)
    await hand.settle_dependents()
    job = await hand.take(await hand.get(job))
    child = await hand.spawn("child", job)

    await _wait(hand, job, STRICT)

    assert [] == await hand.store.dependents(MANY)
    assert [parent.id, child.id] == await hand.store.parents(job.id)
    await hand.finish(child, State.COMPLETED)
    assert ["job"] == await hand.settle_dependents()
    assert STRICT is (await hand.take(await hand.get(job))).dependency_kind


async def test_stale_holder_cannot_let_a_job_wait(hand: Hand) -> None:
    job = await hand.run("job")
    await hand.spawn("child", job)
    hand.clock.advance(job.lease_ttl.total_seconds() + 1)
    lapsed = lifecycle.lease_lost(job, now=hand.now)
    await hand.store.swap([Change(job, lapsed)])

    answer = await _wait(hand, job)

    assert not answer.written
    assert State.RETRYING is (await hand.get(job)).state
    assert [] == await hand.store.parents(job.id)


async def test_wait_ends_the_lease(hand: Hand) -> None:
    job = await hand.run("job")
    await hand.spawn("child", job)
    await _wait(hand, job)

    (renewal,) = await hand.store.extend([fence(job)])

    assert not renewal.held
    hand.clock.advance(job.lease_ttl.total_seconds() + 1)
    assert [] == await hand.store.overdue(MANY)


async def test_children_of_a_waiting_job_are_kept(hand: Hand) -> None:
    job = await hand.run("job")
    child = await hand.spawn("child", job)
    await hand.spawn("other", job)
    await _wait(hand, job)
    await hand.finish(child, State.COMPLETED)
    hand.clock.advance(timedelta(days=1000).total_seconds())

    assert [False] == await hand.store.delete([child.id])
    assert 0 == await hand.store.prune(Retention(), MANY)


async def test_swaps_of_one_call_see_each_other(hand: Hand) -> None:
    job = await hand.run("job")
    child = await hand.take(await hand.spawn("child", job))
    done = lifecycle.completed(child, b"1", now=hand.now)
    waits = children.waiting(job, ALL, now=hand.now)

    answers = await hand.store.swap([Change(child, done), Change(job, waits)])

    assert [(True, False), (True, True)] == [(a.written, a.has_dependents) for a in answers]
    assert ["job"] == await hand.settle_dependents()


async def test_child_that_ends_in_the_same_call_is_noticed(hand: Hand) -> None:
    job = await hand.run("job")
    child = await hand.take(await hand.spawn("child", job))
    done = lifecycle.completed(child, b"1", now=hand.now)
    waits = children.waiting(job, ALL, now=hand.now)

    answers = await hand.store.swap([Change(job, waits), Change(child, done)])

    assert [(True, False), (True, True)] == [(a.written, a.has_dependents) for a in answers]
    assert ["job"] == await hand.settle_dependents()


async def test_waiting_job_can_be_cancelled_and_expires(hand: Hand) -> None:
    job = await hand.run("job")
    await hand.spawn("child", job)
    await _wait(hand, job)
    waiting = await hand.get(job)

    after = lifecycle.cancel_requested(waiting, reason="enough", force=False, now=hand.now)

    assert (await hand.try_swap(waiting, after)).written
    assert State.CANCELLED is (await hand.get(job)).state
    assert [] == await hand.store.dependents(MANY)


async def test_jobs_that_wait_for_another_are_returned_by_id_also_after_its_end(
    hand: Hand,
) -> None:
    parent = await hand.add("parent")
    ids = sorted([(await hand.add(name, after=[parent])).id for name in ("b", "a")])

    before = await hand.store.children(parent.id, waiting=True)
    await hand.finish(parent, State.COMPLETED)

    assert ids == before == await hand.store.children(parent.id, waiting=True)
    assert [] == await hand.store.children(parent.id)
    assert [] == await hand.store.children(ids[0], waiting=True)
    assert [] == await hand.store.children("unknown", waiting=True)
