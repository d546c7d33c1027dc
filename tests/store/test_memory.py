"""What only the memory store does."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.model.policy import Retention
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore, open_store
from tests.conformance.hand import Hand
from tests.conformance.snapshot import NO_WAIT

pytestmark = pytest.mark.req(stores=["memory"])


@pytest.mark.req("S-2")
async def test_nothing_survives_the_store_and_its_documentation_states_that() -> None:
    clock = ManualClock()
    job = await Hand(MemoryStore(clock), clock).add("a")

    assert [None] == await MemoryStore(clock).get([job.id])
    module = __import__("sys").modules[MemoryStore.__module__]
    assert "Nothing survives the process" in (module.__doc__ or "")


async def test_store_is_opened_by_its_url() -> None:
    clock = ManualClock()

    store = open_store("memory://", clock=clock)

    assert isinstance(store, MemoryStore)
    assert clock.now() == store.now()


async def test_events_kept_is_an_option() -> None:
    clock = ManualClock()
    store = MemoryStore(clock, events_kept=3)
    hand = Hand(store, clock)
    start = (await store.events(None, 0, NO_WAIT)).cursor
    await hand.add_all(hand.job("a"), hand.job("b"))

    page = await store.events(start, 10, NO_WAIT)
    await store.prune(Retention(), 1)

    assert (3, True) == (len(page.events), page.gap)
    assert page == await store.events(start, 10, NO_WAIT)


async def test_store_closes_itself_as_a_context_and_lets_waiters_go() -> None:
    async with MemoryStore() as store:
        seen = await store.arrivals(["q"], -1, NO_WAIT)
        waiting = asyncio.create_task(store.arrivals(["q"], seen, timedelta(seconds=10)))
        await asyncio.sleep(0)

    async with asyncio.timeout(5):
        assert seen != await waiting
