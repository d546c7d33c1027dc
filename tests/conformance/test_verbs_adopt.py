"""``adopt``: jobs of another store, written as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model.job import LogLine, State
from holdfast.store import JobExport, MemoryStore, Order, Search
from tests.conformance.cells import CELLS
from tests.conformance.hand import MANY, Hand, make
from tests.conformance.situations import QUEUES
from tests.conformance.snapshot import differences, service, snapshot
from tests.conformance.world import DEADLINE, LABELS, World

if TYPE_CHECKING:
    from holdfast.runtime.clock import ManualClock
    from holdfast.store import Store
    from tests.conformance.stores import Place

CARRIED = ("get", "history", "logs", "cancels", "parents", "failures", "overdue", "next due")
"""What must be the same in the other store, whatever it is."""


@pytest.fixture(scope="module")
async def world() -> World:
    """Every kind of job, in the reference."""
    world = World(MemoryStore)
    await world.build()
    return world


async def exports(store: Store) -> list[JobExport]:
    page = await store.find(Search(order=Order.CREATED_ASC, limit=MANY))
    histories = await store.history([job.id for job in page.jobs])
    return [
        JobExport(job, tuple(history), tuple((await store.logs([job.id]))[0]))
        for job, history in zip(page.jobs, histories, strict=True)
    ]


async def moved_to(store: Store, world: World) -> Store:
    for queue in await world.store.queues():
        settings = {"paused": queue.paused, "ageing": queue.ageing}
        await store.configure(queue.name, settings)
    assert all(await store.adopt(await exports(world.store)))
    return store


async def observed(store: Store) -> dict[str, object]:
    """Return a snapshot, without the order of jobs that one call wrote."""
    found = await snapshot(store, LABELS)
    found["events"] = sorted(map(repr, found["events"]))
    found["find"]["UPDATED_DESC"] = sorted(found["find"]["UPDATED_DESC"])
    return found


@pytest.mark.req("M-3", "M-8", "M-9", "M-10", "S-15")
async def test_adopted_jobs_are_what_they_were(
    store: Store, clock: ManualClock, world: World
) -> None:
    clock.set(world.now)

    await moved_to(store, world)

    before, after = await snapshot(world.store, LABELS), await snapshot(store, LABELS)
    for part in CARRIED:
        assert [] == differences(before[part], after[part], part)
    assert before["find"]["CREATED_ASC"] == after["find"]["CREATED_ASC"]
    assert _counts(before) == _counts(after)
    assert before["dependents"].keys() == after["dependents"].keys()


@pytest.mark.req("M-3", "M-4", "S-3")
async def test_adopted_jobs_are_adopted_alike(
    store: Store, clock: ManualClock, world: World
) -> None:
    clock.set(world.now)
    reference = await moved_to(MemoryStore(clock), world)

    await moved_to(store, world)

    expected = await observed(reference)
    assert [] == differences(expected, await observed(store), "snapshot")
    expected = await service(reference, QUEUES, LABELS)
    assert expected == await service(store, QUEUES, LABELS)


@pytest.mark.parametrize("cell", ["promote", "overdue", "prune"])
@pytest.mark.req("S-6", "M-9")
async def test_adopted_jobs_continue_unchanged(
    store: Store, clock: ManualClock, world: World, cell: str
) -> None:
    clock.set(world.now)
    there, here = World(lambda _: MemoryStore(clock)), World(lambda _: store)
    there.clock = here.clock = clock
    await moved_to(there.store, world)
    await moved_to(store, world)
    clock.set(DEADLINE)
    found = [name for name in CELLS if name.startswith(cell)]
    assert found

    for name in found:
        assert [] == differences(await CELLS[name](there), await CELLS[name](here), name)

    assert [] == differences(await observed(there.store), await observed(store), "snapshot")


@pytest.mark.req("S-12")
async def test_repeated_adoption_changes_nothing(hand: Hand) -> None:
    store, now = hand.store, hand.now
    job = replace(make("a", now=now), trail=())
    history = make("a", now=now).trail
    assert [True] == await store.adopt([JobExport(job, history, (LogLine(now, "INFO", "x"),))])
    before = await snapshot(store, {job.id: "a"})

    answer = await store.adopt([JobExport(replace(job, priority=0), history)] * 2)

    assert [False, False] == answer
    assert [] == differences(before, await snapshot(store, {job.id: "a"}), "snapshot")


@pytest.mark.req("M-2")
async def test_adopted_job_holds_its_key(hand: Hand) -> None:
    job = make("a", now=hand.now, idempotency_key="k", type="t")
    await hand.store.adopt([JobExport(replace(job, trail=()), job.trail)])

    (answer,) = await hand.store.add(
        [make("b", now=hand.now, idempotency_key="k", type="t", payload={"label": "a"})]
    )

    assert ("DUPLICATE", job.id) == (answer.status, answer.job_id)


@pytest.mark.req("S-4")
async def test_adopted_job_may_not_know_since_when_it_is_ready(hand: Hand) -> None:
    jobs = [make(label, now=hand.now, type="t") for label in ("a", "b")]
    files = [JobExport(replace(job, scheduled_at=None, trail=()), job.trail) for job in jobs]
    assert [True, True] == await hand.store.adopt(files)

    taken = await hand.claim(MANY)

    assert 2 == len(taken)
    assert taken == await hand.get_all(*taken)


@pytest.mark.req("M-9")
async def test_dependency_that_was_deleted_long_ago_is_still_named(hand: Hand) -> None:
    parent = make("parent", now=hand.now)
    job = make("child", now=hand.now, after=[parent])
    ended = replace(job, state=State.CANCELLED, finished_at=hand.now, trail=())

    assert [True] == await hand.store.adopt([JobExport(ended, job.trail)])

    (stored,) = await hand.store.get([job.id])
    assert (parent.id,) == stored.depends_on
    assert [] == await hand.store.parents(job.id)


@pytest.mark.req("S-12")
async def test_jobs_adopted_before_a_crash_are_not_adopted_again(place: Place, hand: Hand) -> None:
    jobs = [make(label, now=hand.now) for label in ("a", "b", "c")]
    files = [JobExport(replace(job, trail=()), job.trail) for job in jobs]
    await hand.store.adopt(files[:2])
    other = await place.open(hand.clock).start()

    answers = await other.adopt(files)

    assert [False, False, True] == answers
    page = await other.find(Search(order=Order.CREATED_ASC))
    assert [job.id for job in jobs] == [job.id for job in page.jobs]
    if place.is_shared:
        await other.close()


def _counts(found: dict[str, object]) -> object:
    """Return the number of jobs by queue and state, without measures."""
    queues = found["queues"]
    assert isinstance(queues, dict)
    return {name: info.counts for name, info in queues.items()}


@pytest.mark.req("A-16", "M-9")
async def test_adopted_fan_in_that_was_retried_waits_for_what_had_failed_before(
    store: Store, clock: ManualClock
) -> None:
    hand = Hand(MemoryStore(clock), clock)
    parent = await hand.run("p")
    child = await hand.add("child", after=[parent], dependency_type="FAN_IN")
    failed = await hand.finish(await hand.spawn("part", parent), State.FAILED)
    await hand.settle_dependents()
    await hand.complete(parent)
    await hand.reopen(await hand.get(child))

    assert [True] * 3 == await store.adopt(await exports(hand.store))

    there = Hand(store, clock)
    assert [] == await store.dependents(MANY)
    await there.complete(await there.take(await there.reopen(await there.get(failed))))
    assert ["child"] == await there.settle_dependents()
