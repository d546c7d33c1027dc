"""``add``: what is written, what is refused, and what a repeat means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model.job import Event, State
from holdfast.store import Added, AddStatus
from tests.conformance.hand import MANY, job_id

if TYPE_CHECKING:
    from tests.conformance.hand import Hand


@pytest.mark.req("M-1", "A-5")
async def test_added_job_can_be_read_as_it_was_made(hand: Hand) -> None:
    made = hand.job("a", tags={"k": "v"}, delay=5)

    answers = await hand.store.add([made])

    assert [Added(AddStatus.ACCEPTED, made.id)] == answers
    stored = await hand.get(made)
    assert () == stored.trail
    for name in made.__struct_fields__:
        if name != "trail":
            assert (name, getattr(made, name)) == (name, getattr(stored, name))


@pytest.mark.parametrize("count", [1, 3])
async def test_plain_fields_are_kept_as_the_document_that_was_given(hand: Hand, count: int) -> None:
    made = [replace(hand.job(str(n)), extra=b'{"headers":{"a":"%d"}}' % n) for n in range(count)]
    made.append(hand.job("none"))
    await hand.store.add(made)

    read = await hand.store.get([job.id for job in made])
    claimed = await hand.claim(MANY)

    assert [job.extra for job in made] == [job.extra for job in read if job]
    assert [job.extra for job in made] == [job.extra for job in claimed]


@pytest.mark.req("M-3", "S-15")
async def test_submission_and_first_transition_are_in_the_history(hand: Hand) -> None:
    jobs = [hand.job("now"), hand.job("later", delay=5), hand.job("held", hold=True)]
    await hand.add_all(*jobs)

    histories = await hand.store.history([job.id for job in jobs])

    assert [list(job.trail) for job in jobs] == histories
    assert [
        [Event.SUBMIT, Event.ENQUEUE],
        [Event.SUBMIT, Event.DELAY],
        [Event.SUBMIT],
    ] == [[edge.event for edge in history] for history in histories]


@pytest.mark.req("L-2")
async def test_held_job_is_pending_and_not_served_until_released(hand: Hand) -> None:
    held = await hand.add("held", hold=True)

    assert (State.PENDING, True) == (held.state, held.held)
    assert [] == await hand.drain()
    assert [] == await hand.store.dependents(MANY)
    released = await hand.release(held)
    assert (State.SCHEDULED, False) == (released.state, released.held)
    assert ["held"] == await hand.drain()


@pytest.mark.req("S-12")
async def test_repeated_add_of_the_same_id_is_accepted_and_changes_nothing(hand: Hand) -> None:
    made = hand.job("a", idempotency_key="k")
    await hand.add_all(made)
    running = await hand.take(made)

    answers = await hand.store.add([made])

    assert [Added(AddStatus.ACCEPTED, made.id)] == answers
    assert running == await hand.get(made)
    assert 3 == len((await hand.store.history([made.id]))[0])
    assert [] == await hand.claim()


@pytest.mark.req("S-12")
async def test_same_id_twice_in_one_call_is_one_job(hand: Hand) -> None:
    made = hand.job("a")

    answers = await hand.store.add([made, made])

    assert [AddStatus.ACCEPTED] * 2 == [answer.status for answer in answers]
    assert ["a"] == await hand.drain()
    assert 3 == len((await hand.store.history([made.id]))[0])


async def test_nothing_to_add_is_fine(hand: Hand) -> None:
    assert [] == await hand.store.add([])


@pytest.mark.req("A-2")
async def test_a_thousand_jobs_are_added_in_one_call_in_order(hand: Hand) -> None:
    jobs = [hand.job(f"n{n:04}") for n in range(1000)]

    answers = await hand.store.add(jobs)

    assert [job.id for job in jobs] == [answer.job_id for answer in answers]
    taken = await hand.claim(MANY)
    assert [job.id for job in jobs] == [job.id for job in taken]


@pytest.mark.req("A-2", "M-9")
async def test_atomic_add_writes_nothing_when_a_dependency_is_missing(hand: Hand) -> None:
    gone = hand.job("gone")
    fine, orphan = hand.job("fine"), hand.job("orphan", after=[gone])

    answers = await hand.try_add(fine, orphan, hand.job("also"))

    assert [
        Added(AddStatus.ABORTED, fine.id),
        Added(AddStatus.MISSING, orphan.id, (gone.id,)),
        Added(AddStatus.ABORTED, job_id("also")),
    ] == answers
    assert [None] * 3 == await hand.store.get([answer.job_id for answer in answers])
    assert [[]] == await hand.store.history([fine.id])
    assert [] == await hand.drain()


@pytest.mark.req("A-2", "M-2")
async def test_atomic_add_writes_nothing_when_a_key_conflicts(hand: Hand) -> None:
    holder = await hand.add("a", idempotency_key="k")
    other = hand.job("other", type="a", payload=[2], idempotency_key="k")

    answers = await hand.try_add(hand.job("fine"), other)

    assert [
        Added(AddStatus.ABORTED, job_id("fine")),
        Added(AddStatus.CONFLICT, holder.id),
    ] == answers
    assert [None, None] == await hand.store.get([job_id("fine"), other.id])


@pytest.mark.req("A-2", "M-2")
async def test_duplicate_does_not_abort_an_atomic_add(hand: Hand) -> None:
    holder = await hand.add("a", idempotency_key="k", payload=1)
    twin = hand.job("twin", type="a", payload=1, idempotency_key="k")
    fine = hand.job("fine")

    answers = await hand.try_add(twin, fine)

    assert [
        Added(AddStatus.DUPLICATE, holder.id),
        Added(AddStatus.ACCEPTED, fine.id),
    ] == answers
    assert [None] == await hand.store.get([twin.id])


@pytest.mark.req("A-2")
async def test_not_atomic_add_writes_each_job_that_can_be(hand: Hand) -> None:
    holder = await hand.add("a", idempotency_key="k")
    conflict = hand.job("conflict", type="a", payload=[2], idempotency_key="k")
    orphan = hand.job("orphan", after=[hand.job("gone")])
    grandchild = hand.job("grandchild", after=[orphan])

    answers = await hand.try_add(conflict, hand.job("fine"), orphan, grandchild, atomic=False)

    assert [
        Added(AddStatus.CONFLICT, holder.id),
        Added(AddStatus.ACCEPTED, job_id("fine")),
        Added(AddStatus.MISSING, orphan.id, (job_id("gone"),)),
        Added(AddStatus.MISSING, grandchild.id, (orphan.id,)),
    ] == answers
    assert ["a", "fine"] == await hand.drain()


@pytest.mark.req("A-2", "M-9")
async def test_job_that_depends_on_a_conflict_of_its_call_is_missing_it(hand: Hand) -> None:
    await hand.add("a", idempotency_key="k")
    conflict = hand.job("conflict", type="a", payload=[2], idempotency_key="k")
    child = hand.job("child", after=[conflict])

    answers = await hand.try_add(conflict, child, atomic=False)

    assert Added(AddStatus.MISSING, child.id, (conflict.id,)) == answers[1]


@pytest.mark.req("M-9")
async def test_job_may_depend_on_an_earlier_one_of_its_call(hand: Hand) -> None:
    first = hand.job("first")
    second = hand.job("second", after=[first])
    third = hand.job("third", after=[first, second])

    await hand.add_all(first, second, third)

    assert ["first"] == await hand.drain()


@pytest.mark.req("M-9")
async def test_dependency_on_a_later_job_of_the_call_is_missing(hand: Hand) -> None:
    later = hand.job("later")
    early = hand.job("early", after=[later])

    answers = await hand.try_add(early, later, atomic=False)

    assert [AddStatus.MISSING, AddStatus.ACCEPTED] == [answer.status for answer in answers]
