"""A proxy forwards the whole contract, and a tenant's view shows nothing of other tenants."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import pytest

from holdfast.model.job import State
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore, RecordWrite, Store
from holdfast.store.proxy import StoreProxy
from holdfast.store.tenants import TenantStore
from tests.conformance.hand import Hand

VERBS = sorted(name for name in vars(Store) if not name.startswith("_"))


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "capabilities"])
def test_proxy_has_every_verb_with_the_same_parameters(verb: str) -> None:
    expected, forwarded = getattr(Store, verb), vars(StoreProxy)[verb]

    if isinstance(expected, property):
        assert isinstance(forwarded, property)
    else:
        assert list(inspect.signature(expected).parameters.values()) == list(
            inspect.signature(forwarded).parameters.values()
        )


async def test_proxy_hands_capabilities_and_calls_through() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    inner = MemoryStore(clock)
    proxy = StoreProxy(inner)

    assert inner.capabilities is proxy.capabilities
    assert "" == proxy.not_notified_because
    assert clock.now() == proxy.now()
    async with inner:
        done = await (hand := Hand(proxy, clock)).finish(await hand.add("a"), State.COMPLETED)
        assert {done.id} == await proxy.ended([done.id])
        assert [done] == list(await proxy.get([done.id]))


async def test_tenant_learns_of_ended_jobs_and_kinds_of_its_own_only() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    acme, other = TenantStore(store, "acme"), TenantStore(store, "other")
    done = await (hand := Hand(acme, clock)).finish(await hand.add("a"), State.COMPLETED)
    for view in (store, acme, other):
        await view.keep([RecordWrite(kind=f"k{view is store:d}", key="x", data=b"")])

    assert {done.id} == await acme.ended([done.id])
    assert set() == await other.ended([done.id])
    assert ["k0"] == await acme.kinds()
    assert ["k1"] == await TenantStore(store).kinds()
