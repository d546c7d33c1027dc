"""Idempotency keys: one job per scope and key for the length of its window."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model.job import State
from holdfast.model.policy import Retention
from holdfast.store import Added, AddStatus
from tests.conformance.hand import MANY, TICK, fence

if TYPE_CHECKING:
    from holdfast.model.job import Job
    from tests.conformance.hand import Hand

WINDOW = 60


def _twin(hand: Hand, label: str = "twin", payload: object = 1, key: str = "k") -> Job:
    return hand.job(
        label, type="a", payload=payload, idempotency_key=key, idempotency_window=WINDOW
    )


@pytest.fixture
async def holder(hand: Hand) -> Job:
    """The job that has the key."""
    (job,) = await hand.add_all(_twin(hand, "holder"))
    return job


@pytest.mark.req("M-2")
async def test_same_key_and_payload_is_a_duplicate_of_the_first(hand: Hand, holder: Job) -> None:
    answers = await hand.try_add(_twin(hand))

    assert [Added(AddStatus.DUPLICATE, holder.id)] == answers
    assert ["a"] == await hand.drain()


@pytest.mark.req("M-2")
async def test_same_key_with_another_payload_is_a_conflict(hand: Hand, holder: Job) -> None:
    answers = await hand.try_add(_twin(hand, payload=2))

    assert [Added(AddStatus.CONFLICT, holder.id)] == answers
    assert ["a"] == await hand.drain()


@pytest.mark.req("M-2")
async def test_another_key_or_another_type_is_another_job(hand: Hand, holder: Job) -> None:
    other_type = hand.job("b", payload=1, idempotency_key="k")

    answers = await hand.try_add(_twin(hand, key="K"), other_type)

    assert [AddStatus.ACCEPTED] * 2 == [answer.status for answer in answers]
    assert 3 == len(await hand.claim(MANY))


@pytest.mark.req("M-2")
async def test_key_holds_until_just_before_its_window_ends(hand: Hand, holder: Job) -> None:
    hand.clock.advance(WINDOW)
    hand.clock.advance(-TICK)

    (answer,) = await hand.try_add(_twin(hand))

    assert Added(AddStatus.DUPLICATE, holder.id) == answer


@pytest.mark.req("M-2")
@pytest.mark.parametrize("later", [0, 1], ids=["at", "after"])
async def test_key_is_free_when_its_window_has_ended(hand: Hand, holder: Job, later: int) -> None:
    hand.clock.advance(WINDOW)
    hand.clock.advance(later * TICK)
    twin = _twin(hand, payload=2)

    (answer,) = await hand.try_add(twin)
    (again,) = await hand.try_add(_twin(hand, "third", payload=2))

    assert Added(AddStatus.ACCEPTED, twin.id) == answer
    assert Added(AddStatus.DUPLICATE, twin.id) == again


@pytest.mark.req("M-2")
@pytest.mark.parametrize("end", [State.COMPLETED, State.FAILED, State.DEAD_LETTER, State.CANCELLED])
async def test_key_holds_after_its_job_has_ended(hand: Hand, holder: Job, end: State) -> None:
    await hand.finish(holder, end)

    (answer,) = await hand.try_add(_twin(hand))

    assert Added(AddStatus.DUPLICATE, holder.id) == answer


async def _delete(hand: Hand, job: Job) -> None:
    assert [True] == await hand.store.delete([job.id])


async def _prune(hand: Hand, job: Job) -> None:
    assert 1 == await hand.store.prune(Retention(cancelled=timedelta(0)), MANY)


@pytest.mark.req("M-2")
@pytest.mark.parametrize("remove", [_delete, _prune])
async def test_key_of_a_deleted_job_holds_for_its_window(
    hand: Hand, holder: Job, remove: Callable[[Hand, Job], Awaitable[None]]
) -> None:
    await hand.cancel(holder)
    await remove(hand, holder)
    hand.clock.advance(WINDOW)
    hand.clock.advance(-TICK)
    await hand.store.prune(Retention(), MANY)

    answers = await hand.try_add(_twin(hand), _twin(hand, "other", payload=2), atomic=False)
    hand.clock.advance(TICK)
    later = _twin(hand, "later", payload=2)
    (free,) = await hand.try_add(later)

    assert [
        Added(AddStatus.DUPLICATE, holder.id, deleted=True),
        Added(AddStatus.CONFLICT, holder.id, deleted=True),
    ] == answers
    assert Added(AddStatus.ACCEPTED, later.id) == free
    assert [None] == await hand.store.get([holder.id])


@pytest.mark.req("M-2", "S-12")
async def test_repeated_add_of_a_deleted_job_is_accepted_and_changes_nothing(
    hand: Hand, holder: Job
) -> None:
    await hand.cancel(holder)
    await hand.store.delete([holder.id])

    answers = await hand.try_add(_twin(hand, "holder"), _twin(hand))

    assert [
        Added(AddStatus.ACCEPTED, holder.id),
        Added(AddStatus.DUPLICATE, holder.id, deleted=True),
    ] == answers
    assert [None] == await hand.store.get([holder.id])


@pytest.mark.req("M-2", "M-9")
async def test_dependency_on_a_duplicate_of_a_deleted_job_is_missing(
    hand: Hand, holder: Job
) -> None:
    await hand.cancel(holder)
    await hand.store.delete([holder.id])
    twin = _twin(hand)
    child = hand.job("child", after=[twin])

    answers = await hand.try_add(twin, child, atomic=False)

    assert [
        Added(AddStatus.DUPLICATE, holder.id, deleted=True),
        Added(AddStatus.MISSING, child.id, missing=(holder.id,)),
    ] == answers


@pytest.mark.req("M-2", "M-9")
async def test_key_is_judged_before_the_dependencies(hand: Hand, holder: Job) -> None:
    unknown = hand.job("unknown")
    twin = replace(_twin(hand), depends_on=(unknown.id,))
    other = replace(_twin(hand, "other", key="o"), depends_on=(unknown.id,))

    answers = await hand.try_add(twin, other, atomic=False)

    assert [
        Added(AddStatus.DUPLICATE, holder.id),
        Added(AddStatus.MISSING, other.id, missing=(unknown.id,)),
    ] == answers


@pytest.mark.req("M-9")
async def test_spawn_key_of_a_deleted_job_is_free(hand: Hand) -> None:
    spawner = await hand.run("spawner")
    child = await hand.cancel(await hand.spawn("child", spawner, key="k"))
    await hand.store.delete([child.id])

    again = await hand.spawn("again", spawner, key="k")

    assert again.id != child.id


@pytest.mark.req("M-2")
async def test_key_survives_pruning_within_its_window(hand: Hand, holder: Job) -> None:
    await hand.store.prune(Retention(), MANY)

    (answer,) = await hand.try_add(_twin(hand))

    assert Added(AddStatus.DUPLICATE, holder.id) == answer


@pytest.mark.req("M-2")
async def test_deleting_the_former_holder_leaves_the_key_with_the_new_one(
    hand: Hand, holder: Job
) -> None:
    await hand.cancel(holder)
    hand.clock.advance(WINDOW)
    (newer,) = await hand.add_all(_twin(hand, "newer"))
    await hand.store.delete([holder.id])

    (answer,) = await hand.try_add(_twin(hand))

    assert Added(AddStatus.DUPLICATE, newer.id) == answer


@pytest.mark.req("M-2", "A-2")
async def test_keys_collide_within_one_call(hand: Hand) -> None:
    first, second, third = _twin(hand, "x"), _twin(hand, "y"), _twin(hand, "z", payload=2)

    answers = await hand.try_add(first, second, third, atomic=False)

    assert [
        Added(AddStatus.ACCEPTED, first.id),
        Added(AddStatus.DUPLICATE, first.id),
        Added(AddStatus.CONFLICT, first.id),
    ] == answers


@pytest.mark.req("M-2", "M-9")
async def test_dependency_on_a_duplicate_means_the_job_that_holds_the_key(
    hand: Hand, holder: Job
) -> None:
    twin = _twin(hand)
    child = hand.job("child", after=[twin, holder])

    answers = await hand.try_add(twin, child)

    assert [AddStatus.DUPLICATE, AddStatus.ACCEPTED] == [answer.status for answer in answers]
    stored = await hand.get(child)
    assert (holder.id,) == stored.depends_on
    await hand.complete(await hand.take(holder))
    assert ["child"] == await hand.settle_dependents()


@pytest.mark.req("M-2", "M-9")
async def test_dependency_on_a_duplicate_that_ended_makes_a_verdict_due_at_once(
    hand: Hand, holder: Job
) -> None:
    await hand.complete(await hand.take(holder))
    twin = _twin(hand)
    child = hand.job("child", after=[twin])

    answers = await hand.try_add(twin, child)

    assert [False, True] == [answer.has_dependents for answer in answers]


@pytest.mark.req("M-9", "S-12")
async def test_child_spawned_again_under_its_key_is_not_spawned_twice(hand: Hand) -> None:
    spawner = await hand.run("spawner", backoff={"initial_delay": 0})
    child = await hand.spawn("child", spawner, key="part 1")
    await hand.fail(spawner)
    await hand.store.promote(MANY)
    again = await hand.take(spawner)
    assert again.lease is not None

    repeated = hand.spawned("child again", again, key="part 1")
    (answer,) = await hand.store.add([repeated], fence=fence(again))

    assert Added(AddStatus.DUPLICATE, child.id) == answer


@pytest.mark.req("M-9")
async def test_spawn_keys_of_two_spawners_do_not_collide(hand: Hand) -> None:
    one, two = await hand.run("one"), await hand.run("two")

    first = await hand.spawn("first", one, key="k")
    second = await hand.spawn("second", two, key="k")

    assert first.id != second.id


@pytest.mark.req("M-9")
async def test_spawn_key_has_no_end_while_its_job_is_kept(hand: Hand) -> None:
    spawner = await hand.run("spawner", lease=10**6)
    child = await hand.spawn("child", spawner, key="k")
    hand.clock.advance(10**5)
    await hand.store.prune(Retention(), MANY)

    (answer,) = await hand.store.add(
        [hand.spawned("other", spawner, key="k")], fence=fence(spawner)
    )

    assert Added(AddStatus.DUPLICATE, child.id) == answer
