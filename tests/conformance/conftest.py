"""Every test of this folder runs on every store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.runtime.clock import ManualClock
from tests.conformance.hand import Hand
from tests.conformance.stores import NAMES, PLACES, Place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast.store import Store

SERVED = {"postgres": pytest.mark.postgres, "redis": pytest.mark.redis}


@pytest.fixture
def clock() -> ManualClock:
    """The store's time, which stands still until a test moves it."""
    return ManualClock()


@pytest.fixture(params=[pytest.param(name, marks=SERVED.get(name, ())) for name in NAMES])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty place of the store under test."""
    with PLACES[request.param](request) as place:
        yield place


@pytest.fixture
async def store(place: Place, clock: ManualClock) -> AsyncIterator[Store]:
    """The store under test, started and empty."""
    store = await place.open(clock).start()
    yield store
    await store.close()


@pytest.fixture
def hand(store: Store, clock: ManualClock) -> Hand:
    """Shortcuts for calls on the store under test."""
    return Hand(store, clock)
