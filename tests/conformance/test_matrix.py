"""Every situation x every verb x before, at and after the deadline x every kind of fence.

The store under test and the reference live through the same; what they answer and what
they can tell afterwards must be the same. A failure names the cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.store import MemoryStore
from tests.conformance.cells import CELLS
from tests.conformance.hand import TICK
from tests.conformance.situations import QUEUES, SITUATIONS
from tests.conformance.snapshot import differences, service, snapshot
from tests.conformance.world import DEADLINE, LABELS, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.conformance.stores import Place

MOMENTS = {"before": -TICK, "at": 0 * TICK, "after": TICK}


@pytest.fixture
async def world(place: Place) -> AsyncIterator[World]:
    """All situations in the store under test."""
    world = World(place.open)
    await world.store.start()
    await world.build()
    yield world
    await world.store.close()


async def _reference() -> World:
    world = World(MemoryStore)
    await world.build()
    return world


async def test_world_is_built_alike(world: World) -> None:
    reference = await _reference()

    assert [] == differences(reference.answers, world.answers, "answers")
    assert [] == await _told_differently(reference, world)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.req("M-2", "M-3", "M-4", "M-8", "M-9", "S-3", "S-4", "S-5", "S-6", "S-15", "L-3")
async def test_store_answers_like_the_reference(world: World, cell: str, moment: str) -> None:
    reference = await _reference()
    for each in (reference, world):
        each.clock.set(DEADLINE + MOMENTS[moment])

    expected = await CELLS[cell](reference)
    actual = await CELLS[cell](world)

    assert [] == differences(expected, actual, f"{cell} {moment}")
    assert [] == await _told_differently(reference, world)


async def _told_differently(reference: World, world: World) -> list[str]:
    expected = await snapshot(reference.store, LABELS)
    actual = await snapshot(world.store, LABELS)
    found = differences(expected, actual, "told")
    order = await service(reference.store, QUEUES, LABELS)
    return found + differences(order, await service(world.store, QUEUES, LABELS), "service")


def test_world_holds_every_kind_of_job() -> None:
    assert len(SITUATIONS) == len({situation.label for situation in SITUATIONS}) >= 40
