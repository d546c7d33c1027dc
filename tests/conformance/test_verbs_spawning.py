"""Spawned jobs, jobs that wait for them, and that no needed job is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StaleLeaseError
from holdfast.model.job import State
from holdfast.model.policy import Retention
from holdfast.store import AddStatus, Fence
from tests.conformance.hand import MANY, fence

if TYPE_CHECKING:
    from tests.conformance.hand import Hand


async def _due(hand: Hand) -> list[str]:
    return [each.job.type for each in await hand.store.dependents(MANY)]


@pytest.mark.req("M-9")
async def test_fan_in_waits_for_what_is_spawned_after_it_was_added(hand: Hand) -> None:
    spawner = await hand.run("spawner")
    fan_in = await hand.add("fan_in", after=[spawner], dependency_type="FAN_IN")
    child = await hand.spawn("child", spawner)

    await hand.complete(spawner)
    assert [] == await _due(hand)
    await hand.finish(child, State.COMPLETED)

    (found,) = await hand.store.dependents(MANY)
    assert fan_in.id == found.job.id
    assert {(spawner.id, State.COMPLETED), (child.id, State.COMPLETED)} == set(found.parents)


@pytest.mark.req("M-9")
async def test_fan_in_waits_for_what_was_spawned_before_it_was_added(hand: Hand) -> None:
    spawner = await hand.run("spawner")
    child = await hand.spawn("child", spawner)
    await hand.complete(spawner)

    (answer,) = await hand.store.add(
        [hand.job("fan_in", after=[spawner], dependency_type="FAN_IN")]
    )

    assert answer.has_dependents
    assert [] == await _due(hand)
    await hand.finish(child, State.COMPLETED)
    assert ["fan_in"] == await hand.settle_dependents()


@pytest.mark.req("M-9")
@pytest.mark.parametrize("fan_in_first", [True, False], ids=["before", "after"])
async def test_fan_in_waits_for_nested_spawns(hand: Hand, *, fan_in_first: bool) -> None:
    spawner = await hand.run("spawner")
    if fan_in_first:
        await hand.add("fan_in", after=[spawner], dependency_type="FAN_IN")
    child = await hand.take(await hand.spawn("child", spawner))
    grandchild = await hand.spawn("grandchild", child)
    if not fan_in_first:
        await hand.add("fan_in", after=[spawner], dependency_type="FAN_IN")

    await hand.complete(spawner)
    await hand.complete(child)
    assert [] == await _due(hand)
    await hand.finish(grandchild, State.COMPLETED)

    assert ["fan_in"] == await hand.settle_dependents()


@pytest.mark.req("M-9")
@pytest.mark.parametrize("kind", ["AFTER", "AFTER_ANY", "CHAIN"])
async def test_other_kinds_do_not_wait_for_what_is_spawned(hand: Hand, kind: str) -> None:
    spawner = await hand.run("spawner")
    await hand.add("child.after", after=[spawner], dependency_type=kind)
    await hand.spawn("child", spawner)

    await hand.complete(spawner)

    assert ["child.after"] == await hand.settle_dependents()


@pytest.mark.req("M-9")
async def test_fan_in_shares_the_fate_of_a_spawned_job(hand: Hand) -> None:
    spawner = await hand.run("spawner")
    fan_in = await hand.add("fan_in", after=[spawner], dependency_type="FAN_IN")
    child = await hand.spawn("child", spawner)
    await hand.complete(spawner)

    await hand.finish(child, State.FAILED)

    assert ["fan_in"] == await hand.settle_dependents()
    assert State.FAILED is (await hand.get(fan_in)).state


@pytest.mark.req("M-9", "S-5")
async def test_stale_spawner_spawns_nothing(hand: Hand) -> None:
    stale = await hand.run("spawner")
    await hand.give_back(stale)
    newer = await hand.take(stale)
    child = hand.spawned("child", stale)

    with pytest.raises(StaleLeaseError) as refused:
        await hand.store.add([child], fence=fence(stale))

    assert stale.id == refused.value.job_id
    assert [None] == await hand.store.get([child.id])
    assert newer == await hand.get(stale)


@pytest.mark.req("M-9", "S-5")
@pytest.mark.parametrize("how", ["ended", "lapsed", "unknown job", "empty token"])
async def test_only_a_running_job_under_its_newest_lease_spawns(hand: Hand, how: str) -> None:
    spawner = await hand.run("spawner")
    proof = fence(spawner)
    match how:
        case "ended":
            await hand.complete(spawner)
        case "lapsed":
            await hand.lapse(spawner)
        case "unknown job":
            proof = Fence(hand.job("nobody").id, proof.token)
        case _:
            proof = Fence(spawner.id, "")

    with pytest.raises(StaleLeaseError):
        await hand.store.add([hand.spawned("child", spawner)], fence=proof)

    assert [] == await hand.claim(types=("child",))


@pytest.mark.req("M-9", "S-5")
async def test_spawner_whose_lease_ran_out_but_was_not_taken_still_spawns(hand: Hand) -> None:
    spawner = await hand.run("spawner")
    hand.clock.advance(10**4)

    child = await hand.spawn("child", spawner)

    assert spawner.id == child.spawned_by


@pytest.mark.req("M-9")
async def test_fan_in_waits_for_all_that_is_spawned_in_one_call(hand: Hand) -> None:
    spawner = await hand.run("spawner")
    fan_in = await hand.add("fan_in", after=[spawner], dependency_type="FAN_IN")
    known = await hand.spawn("known", spawner)
    first, second = hand.spawned("first", spawner), hand.spawned("second", spawner)

    added = await hand.store.add([first, second, known, first], atomic=False, fence=fence(spawner))

    assert [AddStatus.ACCEPTED] * 4 == [answer.status for answer in added]
    assert [spawner.id, known.id, first.id, second.id] == await hand.store.parents(fan_in.id)
    await hand.complete(spawner)
    await hand.finish(known, State.COMPLETED)
    await hand.finish(first, State.COMPLETED)
    assert [] == await _due(hand)
    await hand.finish(second, State.COMPLETED)
    assert ["fan_in"] == await hand.settle_dependents()


@pytest.mark.req("M-9")
async def test_fan_in_of_the_spawning_call_itself_waits_for_all_of_it(hand: Hand) -> None:
    spawner = await hand.run("spawner")
    first = hand.spawned("first", spawner)
    fan_in = hand.job("fan_in", after=[spawner], dependency_type="FAN_IN")
    second = hand.spawned("second", spawner)

    await hand.store.add([first, fan_in, second], fence=fence(spawner))

    assert [spawner.id, first.id, second.id] == await hand.store.parents(fan_in.id)
    await hand.complete(spawner)
    await hand.finish(first, State.COMPLETED)
    assert [] == await _due(hand)
    await hand.finish(second, State.COMPLETED)
    assert ["fan_in"] == await hand.settle_dependents()


@pytest.mark.req("M-9")
async def test_parents_are_returned_in_the_order_in_which_they_were_named(hand: Hand) -> None:
    p, q = await hand.add_all(hand.job("p"), hand.job("q"))
    child = await hand.add("child", after=[q, p])

    assert [q.id, p.id] == await hand.store.parents(child.id)
    assert [] == await hand.store.parents(p.id)
    assert [] == await hand.store.parents(hand.job("nobody").id)


@pytest.mark.req("M-9")
async def test_parents_are_still_returned_when_the_dependent_has_run(hand: Hand) -> None:
    spawner = await hand.run("spawner")
    fan_in = await hand.add("fan_in", after=[spawner], dependency_type="FAN_IN")
    child = await hand.spawn("child", spawner)
    await hand.complete(spawner)
    await hand.finish(child, State.COMPLETED)
    await hand.settle_dependents()

    await hand.finish(fan_in, State.COMPLETED)

    assert [spawner.id, child.id] == await hand.store.parents(fan_in.id)


# --- what is needed stays -------------------------------------------------------------------


@pytest.mark.req("M-9")
async def test_ended_job_that_a_live_one_depends_on_is_neither_deleted_nor_pruned(
    hand: Hand,
) -> None:
    parent = await hand.finish(await hand.add("p"), State.COMPLETED)
    child = await hand.add("child", after=[parent])
    hand.clock.advance(Retention().completed or 0)

    assert [False] == await hand.store.delete([parent.id])
    assert 0 == await hand.store.prune(Retention(), MANY)
    await hand.cancel(child)
    assert 1 == await hand.store.prune(Retention(), MANY)

    assert [None] == await hand.store.get([parent.id])


@pytest.mark.req("M-9")
async def test_ended_job_is_deleted_once_its_dependents_have_ended(hand: Hand) -> None:
    parent = await hand.finish(await hand.add("p"), State.COMPLETED)
    child = await hand.add("child", after=[parent])
    await hand.settle_dependents()
    assert [False] == await hand.store.delete([parent.id])

    await hand.finish(await hand.get(child), State.COMPLETED)

    assert [True, True] == await hand.store.delete([parent.id, child.id])
    assert [] == await _due(hand)


@pytest.mark.req("M-9")
async def test_spawned_job_is_kept_for_the_fan_in_that_waits_for_it(hand: Hand) -> None:
    spawner = await hand.run("spawner")
    await hand.add("fan_in", after=[spawner], dependency_type="FAN_IN")
    child = await hand.finish(await hand.spawn("child", spawner), State.COMPLETED)

    assert [False] == await hand.store.delete([child.id])
