"""Retried jobs: they wait for their dependencies again, and no end is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.model import lifecycle
from holdfast.model.job import Job, State
from holdfast.store.values import Change
from tests.conformance.hand import MANY

if TYPE_CHECKING:
    from tests.conformance.hand import Hand

STRICT = ["AFTER", "CHAIN", "FAN_IN"]
ENDED_SUFFICES = ["AFTER_ANY", "AFTER_ALL"]

pytestmark = pytest.mark.req("A-16", "M-9")


async def _failed_pair(hand: Hand, kind: str = "AFTER") -> tuple[Job, Job]:
    """A failed job, and one that failed through it or, where any end suffices, by itself."""
    parent = await hand.add("p")
    child = await hand.add("child", after=[parent], dependency_type=kind)
    parent = await hand.finish(parent, State.FAILED)
    await hand.settle_dependents()
    child = await hand.get(child)
    if child.state is State.SCHEDULED:
        child = await hand.finish(child, State.FAILED)
    assert State.FAILED is child.state
    return parent, child


@pytest.mark.parametrize("kind", STRICT)
async def test_retried_job_waits_for_a_failed_dependency(hand: Hand, kind: str) -> None:
    _, child = await _failed_pair(hand, kind)

    answer = await hand.try_swap(child, lifecycle.reopened(child, now=hand.now))

    assert (True, False) == (answer.written, answer.has_dependents)
    assert State.PENDING is (await hand.get(child)).state
    assert [] == await hand.store.dependents(MANY)
    assert [] == await hand.drain()


@pytest.mark.parametrize("kind", STRICT)
async def test_retried_job_runs_when_its_retried_dependency_completes(
    hand: Hand, kind: str
) -> None:
    parent, child = await _failed_pair(hand, kind)
    await hand.reopen(child)
    parent = await hand.take(await hand.reopen(parent))

    answer = await hand.try_swap(parent, lifecycle.completed(parent, b"null", now=hand.now))

    assert (True, True) == (answer.written, answer.has_dependents)
    assert ["child"] == await hand.settle_dependents()
    assert ["child"] == await hand.drain()


@pytest.mark.parametrize("kind", STRICT)
async def test_retried_job_inherits_the_new_failure_of_its_dependency(
    hand: Hand, kind: str
) -> None:
    parent, child = await _failed_pair(hand, kind)
    await hand.reopen(parent)
    await hand.reopen(child)

    await hand.finish(await hand.get(parent), State.DEAD_LETTER)
    await hand.settle_dependents()

    assert State.DEAD_LETTER is (await hand.get(child)).state


@pytest.mark.parametrize("kind", ENDED_SUFFICES)
async def test_retried_job_for_which_any_end_suffices_is_due_at_once(hand: Hand, kind: str) -> None:
    parent, child = await _failed_pair(hand, kind)

    answer = await hand.try_swap(child, lifecycle.reopened(child, now=hand.now))

    assert (True, True) == (answer.written, answer.has_dependents)
    (found,) = await hand.store.dependents(MANY)
    assert ((parent.id, State.FAILED),) == found.parents
    await hand.settle_dependents()
    assert ["child"] == await hand.drain()


@pytest.mark.parametrize("kind", [*STRICT, *ENDED_SUFFICES])
async def test_retried_job_waits_for_a_dependency_that_was_retried_before(
    hand: Hand, kind: str
) -> None:
    parent, child = await _failed_pair(hand, kind)
    running = await hand.take(await hand.reopen(parent))

    await hand.reopen(child)

    assert [] == await hand.store.dependents(MANY)
    await hand.complete(running)
    assert ["child"] == await hand.settle_dependents()
    assert ["child"] == await hand.drain()


@pytest.mark.parametrize("kind", [*STRICT, *ENDED_SUFFICES])
async def test_retried_job_with_completed_dependencies_runs_at_once(hand: Hand, kind: str) -> None:
    parent = await hand.finish(await hand.add("p"), State.COMPLETED)
    child = await hand.add("child", after=[parent], dependency_type=kind)
    await hand.settle_dependents()
    failed = await hand.finish(await hand.get(child), State.FAILED)

    answer = await hand.try_swap(failed, lifecycle.reopened(failed, now=hand.now))

    assert answer.has_dependents
    await hand.settle_dependents()
    assert ["child"] == await hand.drain()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_chain_that_is_retried_in_one_call_runs_in_order(
    hand: Hand, order: tuple[int, int]
) -> None:
    pair = await _failed_pair(hand)
    changes = [Change(job, lifecycle.reopened(job, now=hand.now)) for job in pair]

    answers = await hand.store.swap([changes[n] for n in order])

    assert [(True, False)] * 2 == [(a.written, a.has_dependents) for a in answers]
    await hand.complete(await hand.take(pair[0]))
    await hand.settle_dependents()
    assert ["child"] == await hand.drain()


async def test_dependency_that_ends_later_in_the_same_call_is_noticed(hand: Hand) -> None:
    parent, child = await _failed_pair(hand)
    parent = await hand.take(await hand.reopen(parent))
    end = lifecycle.completed(parent, b"null", now=hand.now)

    answers = await hand.store.swap(
        [Change(child, lifecycle.reopened(child, now=hand.now)), Change(parent, end)]
    )

    assert [(True, False), (True, True)] == [(a.written, a.has_dependents) for a in answers]
    assert ["child"] == await hand.settle_dependents()


async def test_dependency_that_ended_earlier_in_the_same_call_is_noticed(hand: Hand) -> None:
    parent, child = await _failed_pair(hand)
    parent = await hand.take(await hand.reopen(parent))
    end = lifecycle.completed(parent, b"null", now=hand.now)

    answers = await hand.store.swap(
        [Change(parent, end), Change(child, lifecycle.reopened(child, now=hand.now))]
    )

    assert [(True, False), (True, True)] == [(a.written, a.has_dependents) for a in answers]
    assert ["child"] == await hand.settle_dependents()


async def test_retried_fan_in_waits_for_what_was_spawned_since(hand: Hand) -> None:
    parent = await hand.run("p")
    first = await hand.spawn("first", parent)
    child = await hand.add("child", after=[parent], dependency_type="FAN_IN")
    first = await hand.finish(first, State.FAILED)
    await hand.settle_dependents()
    second = await hand.spawn("second", parent)
    await hand.complete(parent)
    child = await hand.reopen(await hand.get(child))

    await hand.complete(await hand.take(await hand.reopen(first)))

    assert [] == await hand.settle_dependents()
    assert [parent.id, first.id, second.id] == await hand.store.parents(child.id)
    await hand.finish(second, State.COMPLETED)
    assert ["child"] == await hand.settle_dependents()


async def test_retried_job_does_not_wait_for_a_deleted_dependency(hand: Hand) -> None:
    parent, child = await _failed_pair(hand)
    assert [True] == await hand.store.delete([parent.id])

    answer = await hand.try_swap(child, lifecycle.reopened(child, now=hand.now))

    assert answer.has_dependents
    (found,) = await hand.store.dependents(MANY)
    assert ((parent.id, State.COMPLETED),) == found.parents


async def test_dependency_of_a_retried_job_is_not_deleted(hand: Hand) -> None:
    parent, child = await _failed_pair(hand)

    await hand.reopen(child)

    assert [False] == await hand.store.delete([parent.id])


async def test_dependents_that_are_not_retried_stay_ended(hand: Hand) -> None:
    parent, child = await _failed_pair(hand)

    running = await hand.take(await hand.reopen(parent))
    answer = await hand.try_swap(running, lifecycle.completed(running, b"null", now=hand.now))

    assert not answer.has_dependents
    assert [] == await hand.settle_dependents()
    assert child == await hand.get(child)


@pytest.mark.parametrize("kind", ["AFTER_ALL"])
async def test_after_all_runs_only_when_every_dependency_has_ended(hand: Hand, kind: str) -> None:
    first, second = await hand.add_all(hand.job("p"), hand.job("q"))
    await hand.add("child", after=[first, second], dependency_type=kind)

    await hand.finish(first, State.FAILED)
    early = await hand.store.dependents(MANY)
    await hand.finish(second, State.CANCELLED)

    assert [] == early
    assert ["child"] == await hand.settle_dependents()
    assert ["child"] == await hand.drain()


async def test_after_all_waits_for_the_rest_when_one_had_failed_before(hand: Hand) -> None:
    failed = await hand.finish(await hand.add("p"), State.FAILED)
    other = await hand.add("q")
    await hand.add("child", after=[failed, other], dependency_type="AFTER_ALL")

    assert [] == await hand.store.dependents(MANY)
    await hand.finish(other, State.COMPLETED)
    assert ["child"] == await hand.settle_dependents()
