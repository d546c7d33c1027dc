"""Every situation x every verb x before, at and after the deadline x every kind of fence.

The store under test and the reference live through the same; what they answer and what
they can tell afterwards must be the same. A failure names the cell.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from holdfast.store import MemoryStore, Search
from holdfast.verify import violations
from tests.conformance.cells import CELLS
from tests.conformance.hand import MANY, TICK
from tests.conformance.situations import QUEUES, SITUATIONS
from tests.conformance.snapshot import differences, service, snapshot
from tests.conformance.world import DEADLINE, LABELS, World, copied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.store import Store
    from tests.conformance.stores import Place

MOMENTS = {"before": -TICK, "at": 0 * TICK, "after": TICK}


@dataclass(frozen=True)
class Outcome:
    """The answers of a cell, and a snapshot of the world afterwards."""

    answers: object
    seen: dict[str, object]
    service: list[str]


class Reference:
    """The world in the memory store and the effect of each cell, both computed once."""

    def __init__(self, built: World) -> None:
        self.built = built
        self._outcomes: dict[tuple[str, str], tuple[dict[str, str], Outcome]] = {}

    def world(self) -> World:
        """Return a fresh copy of it."""
        assert isinstance(self.built.store, MemoryStore)
        original = self.built.store
        return World(lambda clock: copied(original, clock))

    async def outcome(self, cell: str, moment: str) -> tuple[dict[str, str], Outcome]:
        """Return every job afterwards by its label, and the outcome."""
        if (cell, moment) not in self._outcomes:
            world = self.world()
            world.clock.set(DEADLINE + MOMENTS[moment])
            answers = await CELLS[cell](world)
            labels = await _labels(world.store)
            self._outcomes[cell, moment] = labels, await _observed(world, answers, labels)
        return self._outcomes[cell, moment]


@pytest.fixture(scope="module")
async def reference() -> Reference:
    world = World(MemoryStore)
    await world.build()
    return Reference(world)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a world is saved to be copied instead of built again, if its place supports that."""
    return tmp_path_factory.mktemp("world") / "world"


@pytest.fixture
async def world(place: Place, kept: Path, reference: Reference) -> AsyncIterator[World]:
    """All situations in the store under test."""
    world = await _opened(place, kept, reference)
    yield world
    await world.store.close()


async def _opened(place: Place, kept: Path, reference: Reference) -> World:
    if not place.is_shared:
        return reference.world()
    is_restored = place.restore(kept)
    world = await _started(place)
    if is_restored:
        return world
    await world.build()
    await world.store.close()
    place.save(kept)
    return await _started(place)


async def _started(place: Place) -> World:
    world = World(place.open)
    await world.store.start()
    return world


async def test_world_is_built_alike(place: Place, reference: Reference) -> None:
    world = await _started(place)

    await world.build()

    assert [] == differences(reference.built.answers, world.answers, "answers")
    expected = await snapshot(reference.built.store, LABELS)
    assert [] == differences(expected, await snapshot(world.store, LABELS), "snapshot")
    await world.store.close()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.req("M-2", "M-3", "M-4", "M-8", "M-9", "S-3", "S-4", "S-5", "S-6", "S-15", "L-3")
async def test_store_answers_like_the_reference(
    world: World, reference: Reference, cell: str, moment: str
) -> None:
    labels, expected = await reference.outcome(cell, moment)
    world.clock.set(DEADLINE + MOMENTS[moment])

    answers = await CELLS[cell](world)

    assert [] == differences(expected.answers, answers, f"{cell} {moment}")
    await _assert_sound(world.store, list(labels))
    actual = await _observed(world, answers, labels)
    assert [] == differences(expected.seen, actual.seen, "snapshot")
    assert [] == differences(expected.service, actual.service, "service")


async def _observed(world: World, answers: object, labels: dict[str, str]) -> Outcome:
    seen = await snapshot(world.store, labels)
    return Outcome(answers, seen, await service(world.store, QUEUES, labels))


async def _labels(store: Store) -> dict[str, str]:
    """The labels of all situations, and of the jobs that came after them."""
    jobs = (await store.find(Search(limit=MANY))).jobs
    return LABELS | {job.id: f"new {job.type}" for job in jobs if job.id not in LABELS}


async def _assert_sound(store: Store, ids: list[str]) -> None:
    """Every history is valid, and the counters equal the counts."""
    jobs = [job for job in await store.get(ids) if job is not None]
    histories = await store.history([job.id for job in jobs])
    wrong = {
        j.type: found for j, h in zip(jobs, histories, strict=True) if (found := violations(j, h))
    }
    assert {} == wrong
    counted = Counter((job.queue, job.type, job.priority, job.state) for job in jobs)
    tallies = (await store.stats(TICK)).tallies
    assert dict(counted) == {(t.queue, t.type, t.priority, t.state): t.count for t in tallies}


def test_world_holds_every_kind_of_job() -> None:
    assert len(SITUATIONS) == len({situation.label for situation in SITUATIONS}) >= 40
