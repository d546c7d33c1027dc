"""Limits and pauses against tenants that reach too far, and against damaged records."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Holdfast, ValidationError
from holdfast.errors import ForbiddenError
from holdfast.maintenance.keeper import Keeper
from holdfast.model.reserved import DRAINED, FAILURE_BOOKS, LIMIT_OVERRIDES, QUEUE_PAUSES
from holdfast.model.times import format_timestamp
from holdfast.observe import Silent
from holdfast.operations.draining import prune_drained
from holdfast.operations.limits import declare_limits
from holdfast.runtime.clock import ManualClock
from holdfast.store import LimitRule, RecordWrite, Store
from holdfast.store.tenants import TenantStore

CODE = LimitRule(concurrency=4)
PAST = b'"2020-01-01T00:00:00Z"'


def tenant_of(app: Holdfast, namespace: str) -> Holdfast:
    return app.over(TenantStore(app.store, namespace))


async def rule(app: Holdfast, scope: str) -> LimitRule | None:
    return next((each.rule for each in await app.limit_states() if each.scope == scope), None)


async def test_tenant_does_not_change_a_limit_that_was_set_from_outside(app: Holdfast) -> None:
    tenant = tenant_of(app, "acme")
    await app.set_limit("queue:acme/q", rate=5)

    with pytest.raises(ForbiddenError):
        await tenant.lift_limit("queue:q")
    with pytest.raises(ForbiddenError):
        await tenant.set_limit("queue:q", rate=500)
    seen = await tenant.limit_states()
    await app.lift_limit("queue:acme/q")
    await tenant.set_limit("queue:q", rate=7)
    await Keeper(app.store, Silent()).once()

    assert [("queue:q", 5, True)] == [(s.scope, s.rule.rate, s.overridden) for s in seen]
    assert 7 == (await app.limit_states())[0].rule.rate


async def test_limit_of_the_code_applies_again_when_a_tenant_lifts_its_own(app: Holdfast) -> None:
    tenant = tenant_of(app, "acme")
    await declare_limits(app.store, {"queue:acme/q": CODE})

    await tenant.set_limit("queue:q", concurrency=1)
    lifted = await tenant.lift_limit("queue:q")
    await tenant.lift_limit("queue:q")

    assert lifted is not None
    assert (CODE, CODE) == (lifted.rule, lifted.declared)
    assert CODE == await rule(app, "queue:acme/q")


@pytest.mark.parametrize("namespace", ["", "acme"])
@pytest.mark.parametrize("name", ["other/q", "a\x01b", "a\nb", "x" * 200, ""])
async def test_limit_names_a_queue_of_its_namespace(
    app: Holdfast, namespace: str, name: str
) -> None:
    tenant = tenant_of(app, namespace)

    for change in (tenant.set_limit(f"queue:{name}", rate=1), tenant.lift_limit(f"queue:{name}")):
        with pytest.raises(ValidationError, match="scope"):
            await change

    assert [] == await app.limit_states()


async def forge(store: Store, kind: str, key: str, data: bytes) -> None:
    await store.keep([RecordWrite(kind=kind, key=key, data=data)])


async def test_damaged_records_stop_neither_pauses_nor_limits(
    app: Holdfast, clock: ManualClock
) -> None:
    await app.set_limit("queue:default", rate=3)
    await app.store.limit("queue:default", CODE)
    await app.pause("default", until=app.store.now() + timedelta(seconds=5))
    for key, data in {
        "a": b'{"at":"2020-01-01T00:00:00","until":"2020-01-01T00:00:00"}',
        "b": b"\xff",
        "c" * 3000: b'{"at":%s,"until":%s}' % (PAST, PAST),
    }.items():
        await forge(app.store, QUEUE_PAUSES, key, data)
    for scope, limit in {
        "nonsense": b'{"rate":1}',
        "host:a": b'{"rate":1}',
        "queue:a": b'{"rate":-1}',
        "queue:b": b'{"rate":99999999999999999999999}',
        "queue:c": b'{"rate":1,"per":"PT0S"}',
        "queue:d": b'{"rate":1,"per":"P99999D"}',
        "queue:e": b"{}",
    }.items():
        await forge(app.store, LIMIT_OVERRIDES, scope, limit)
    await forge(app.store, FAILURE_BOOKS, "m/zz", b"{}")
    clock.advance(6)

    await Keeper(app.store, Silent()).once()

    assert not any(queue.paused for queue in await app.queues())
    assert [("queue:default", 3)] == [(s.scope, s.rule.rate) for s in await app.limit_states()]
    assert () == (await app.failure_groups()).groups


async def test_request_to_drain_a_worker_that_died_is_forgotten(
    app: Holdfast, clock: ManualClock
) -> None:
    at = format_timestamp(app.store.now()).encode()
    await forge(app.store, DRAINED, "dead", b'{"at":"%s"}' % at)
    await forge(app.store, DRAINED, "damaged", b"{}")

    await prune_drained(app.store)
    early = await app.store.browse(DRAINED)
    clock.advance(86_401)
    await prune_drained(app.store)

    assert ["dead"] == [record.key for record in early]
    assert [] == await app.store.browse(DRAINED)
