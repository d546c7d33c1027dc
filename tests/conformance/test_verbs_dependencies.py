"""Dependencies: which jobs wait for which, and that no end is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.model import lifecycle
from holdfast.model.job import Priority, State
from tests.conformance.decisions import ENDINGS
from tests.conformance.hand import MANY

if TYPE_CHECKING:
    from tests.conformance.hand import Hand

ENDS = [State.COMPLETED, State.FAILED, State.DEAD_LETTER, State.CANCELLED]
KINDS = ["AFTER", "AFTER_ANY", "AFTER_ALL", "CHAIN", "FAN_IN"]


async def _due(hand: Hand) -> list[tuple[str, list[State]]]:
    found = await hand.store.dependents(MANY)
    return [(each.job.type, [state for _, state in each.parents]) for each in found]


@pytest.mark.req("M-9")
@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_due_while_every_dependency_is_open(hand: Hand, kind: str) -> None:
    parents = await hand.add_all(hand.job("p"), hand.job("q"))

    await hand.add("child", after=parents, dependency_type=kind)

    assert [] == await _due(hand)


@pytest.mark.req("M-9")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", KINDS)
async def test_end_of_the_only_dependency_makes_a_verdict_due(
    hand: Hand, kind: str, end: State
) -> None:
    parent = await hand.run("p")
    child = await hand.add("child", after=[parent], dependency_type=kind)

    answer = await hand.try_swap(parent, ENDINGS[end](parent, hand.now))

    assert (True, True) == (answer.written, answer.has_dependents)
    (found,) = await hand.store.dependents(MANY)
    assert (child, ((parent.id, end),)) == (found.job, found.parents)


@pytest.mark.req("M-9")
@pytest.mark.parametrize("end", ENDS)
async def test_dependency_that_ended_before_the_submission_is_seen_by_it(
    hand: Hand, end: State
) -> None:
    parent = await hand.finish(await hand.add("p"), end)

    (answer,) = await hand.store.add([hand.job("child", after=[parent])])

    assert answer.has_dependents
    assert [("child", [end])] == await _due(hand)


@pytest.mark.req("M-9")
@pytest.mark.parametrize(
    ("kind", "end", "is_due"),
    [
        ("AFTER", State.COMPLETED, False),
        ("AFTER", State.FAILED, True),
        ("CHAIN", State.DEAD_LETTER, True),
        ("FAN_IN", State.CANCELLED, True),
        ("AFTER_ANY", State.COMPLETED, True),
    ],
)
async def test_one_of_two_that_ended_before_the_submission_is_due_only_if_it_decides(
    hand: Hand, kind: str, end: State, *, is_due: bool
) -> None:
    ended = await hand.finish(await hand.add("p"), end)
    is_open = await hand.add("q")

    await hand.add("child", after=[is_open, ended], dependency_type=kind)

    assert ([("child", [State.SCHEDULED, end])] if is_due else []) == await _due(hand)


@pytest.mark.req("M-9")
async def test_submission_with_open_dependencies_reports_no_dependents(hand: Hand) -> None:
    parent = await hand.add("p")

    (answer,) = await hand.store.add([hand.job("child", after=[parent])])

    assert not answer.has_dependents


@pytest.mark.req("M-9")
async def test_end_of_a_job_without_dependents_reports_none(hand: Hand) -> None:
    running = await hand.run("a")

    answer = await hand.try_swap(running, ENDINGS[State.COMPLETED](running, hand.now))

    assert (True, False) == (answer.written, answer.has_dependents)


@pytest.mark.req("M-9")
async def test_retry_of_a_dependency_is_no_end_of_it(hand: Hand) -> None:
    parent = await hand.run("p")
    await hand.add("child", after=[parent])

    retried = lifecycle.given_back(parent, now=hand.now)
    answer = await hand.try_swap(parent, retried)

    assert (True, False) == (answer.written, answer.has_dependents)
    assert [] == await _due(hand)


@pytest.mark.req("M-9")
@pytest.mark.parametrize(
    ("kind", "first_end", "is_due"),
    [
        ("AFTER", State.COMPLETED, False),
        ("CHAIN", State.COMPLETED, False),
        ("FAN_IN", State.COMPLETED, False),
        ("AFTER_ANY", State.COMPLETED, True),
        ("AFTER", State.FAILED, True),
        ("CHAIN", State.CANCELLED, True),
        ("FAN_IN", State.DEAD_LETTER, True),
        ("AFTER_ANY", State.FAILED, True),
    ],
)
async def test_one_of_two_ends_is_due_only_if_it_decides(
    hand: Hand, kind: str, first_end: State, *, is_due: bool
) -> None:
    p, q = await hand.add_all(hand.job("p"), hand.job("q"))
    await hand.add("child", after=[q, p], dependency_type=kind)

    await hand.finish(p, first_end)

    expected = [("child", [State.SCHEDULED, first_end])] if is_due else []
    assert expected == await _due(hand)


@pytest.mark.req("M-9")
async def test_last_completion_releases_the_dependent(hand: Hand) -> None:
    p, q = await hand.add_all(hand.job("p"), hand.job("q"))
    await hand.add("child", after=[p, q])
    await hand.finish(p, State.COMPLETED)

    await hand.finish(q, State.COMPLETED)

    assert ["child"] == await hand.settle_dependents()
    assert ["child"] == await hand.drain()


@pytest.mark.req("M-9")
@pytest.mark.parametrize("end", ENDS[1:])
async def test_bad_end_passes_through_the_whole_graph(hand: Hand, end: State) -> None:
    root = await hand.add("root")
    middle = await hand.add("middle", after=[root])
    leaf = await hand.add("leaf", after=[middle], dependency_type="CHAIN")
    other = await hand.add("other", after=[leaf], dependency_type="AFTER_ANY")

    await hand.finish(root, end)

    assert ["middle", "leaf", "other"] == await hand.settle_dependents()
    states = [job.state for job in await hand.get_all(middle, leaf, other)]
    assert [end, end, State.SCHEDULED] == states


@pytest.mark.req("M-9")
async def test_dependents_are_found_oldest_first_up_to_the_limit(hand: Hand) -> None:
    parent = await hand.add("p")
    for name in ("c1", "c2", "c3"):
        await hand.add(name, after=[parent])
    await hand.finish(parent, State.COMPLETED)

    found = await hand.store.dependents(2)

    assert ["c1", "c2"] == [each.job.type for each in found]


@pytest.mark.req("M-9", "L-2")
async def test_held_dependent_is_not_due_until_it_is_released(hand: Hand) -> None:
    parent = await hand.add("p")
    child = await hand.add("child", after=[parent], hold=True)
    await hand.finish(parent, State.COMPLETED)
    assert [] == await _due(hand)

    released = await hand.release(child)

    assert State.PENDING is released.state
    assert [("child", [State.COMPLETED])] == await _due(hand)


@pytest.mark.req("M-9")
async def test_dependent_that_moved_on_is_no_longer_due(hand: Hand) -> None:
    parent = await hand.add("p")
    child = await hand.add("child", after=[parent])
    await hand.finish(parent, State.COMPLETED)
    await hand.cancel(child)

    assert [] == await _due(hand)


@pytest.mark.req("M-9")
async def test_released_dependent_with_a_delay_waits_for_its_time(hand: Hand) -> None:
    parent = await hand.add("p")
    child = await hand.add("child", after=[parent], delay=60)
    await hand.finish(parent, State.COMPLETED)

    await hand.settle_dependents()

    assert State.DELAYED is (await hand.get(child)).state
    assert [] == await hand.drain()


@pytest.mark.req("M-9", "A-16")
async def test_dependency_that_is_reopened_and_completes_is_judged_by_its_newest_end(
    hand: Hand,
) -> None:
    parent = await hand.finish(await hand.add("p"), State.FAILED)
    await hand.add("child", after=[parent])
    reopened = await hand.reopen(parent)

    await hand.complete(await hand.take(reopened))

    assert [("child", [State.COMPLETED])] == await _due(hand)


@pytest.mark.req("M-9", "A-16")
async def test_dependency_that_is_reopened_and_completes_leaves_the_others_to_be_waited_for(
    hand: Hand,
) -> None:
    failed = await hand.finish(await hand.add("p"), State.FAILED)
    other = await hand.add("q")
    await hand.add("child", after=[failed, other])

    await hand.complete(await hand.take(await hand.reopen(failed)))

    assert [] == await _due(hand)
    await hand.finish(other, State.COMPLETED)
    assert ["child"] == await hand.settle_dependents()


@pytest.mark.req("M-9")
async def test_end_is_recorded_for_every_dependent_exactly_once(hand: Hand) -> None:
    parent = await hand.run("p")
    children = [hand.job(f"c{n}", after=[parent]) for n in range(5)]
    await hand.add_all(*children)

    await hand.complete(parent)

    assert [f"c{n}" for n in range(5)] == await hand.settle_dependents()
    assert [f"c{n}" for n in range(5)] == await hand.drain()


@pytest.mark.req("M-5")
async def test_dependent_keeps_the_priority_it_inherited(hand: Hand) -> None:
    parent = await hand.add("p", priority=Priority.HIGH)
    child = await hand.add("child", after=[parent], priority=Priority.BULK)
    await hand.finish(parent, State.COMPLETED)
    await hand.add("normal")

    await hand.settle_dependents()

    assert Priority.HIGH == (await hand.get(child)).priority
    assert ["child", "normal"] == await hand.drain()


async def test_deleted_parents_are_remembered_as_long_as_the_child(hand: Hand) -> None:
    parents = await hand.add_all(hand.job("p"), hand.job("q"))
    child = await hand.add("child", after=parents)
    for job in (*parents, child):
        await hand.try_swap(job, lifecycle.cancelled(job, now=hand.now))

    assert [True] == await hand.store.delete([parents[0].id])
    assert [job.id for job in parents] == await hand.store.parents(child.id)

    assert [True] == await hand.store.delete([child.id])
    assert [] == await hand.store.parents(child.id)
