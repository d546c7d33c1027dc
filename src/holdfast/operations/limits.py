"""Limits at run time: what is used, and overrides that hold against what the code declares.

The limit in force is the store's own, so workers follow at once. What the code declares and the
override are kept beside it: a worker that starts does not undo an override, and when it is lifted,
the declaration applies again. A namespace does not change what was set from outside of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from holdfast.errors import Fault, ForbiddenError, StoreUnavailableError, ValidationError
from holdfast.model.pace import limit_faults
from holdfast.model.reserved import LIMIT_DECLARATIONS, LIMIT_OVERRIDES
from holdfast.model.submission import BULLMQ_NAME_RULE, TYPE_RULE
from holdfast.model.times import Span, parse_duration, shown
from holdfast.operations.quarantine import set_aside
from holdfast.store import LimitRule, Record, RecordWrite, Store
from holdfast.store.browsing import every_record
from holdfast.store.damage import readable
from holdfast.store.namespaces import DIVIDER
from holdfast.store.tenants import TenantStore

SCOPE_RULE = re.compile(r"(?P<kind>queue|task|key):(?P<name>.{1,1200})", re.DOTALL)


class LimitOverride(LimitRule, frozen=True, kw_only=True):
    """A limit that was set at run time, as the store keeps it under its scope."""

    namespace: str = ""
    """The namespace whose operator set it; empty: an operator of the whole store."""


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, how much of it is used, and where it comes from."""

    scope: str
    """``queue:NAME``, ``task:TYPE``, ``key:TYPE`` or ``key:TYPE:KEY``."""
    rule: LimitRule
    running: int = 0
    started: int = 0
    """How many starts of the rule's burst are used."""
    until: datetime | None = None
    """When the next job may start; None while one may start now."""
    overridden: bool = False
    """Whether it was set at run time."""
    declared: LimitRule | None = None
    """What the code declares."""


async def limit_states(store: Store) -> list[LimitInfo]:
    """Return every limit with its use, by scope."""
    overrides, declared = (
        await _rules(store, LIMIT_OVERRIDES),
        await _rules(store, LIMIT_DECLARATIONS),
    )
    return [
        LimitInfo(
            scope=state.scope,
            rule=state.rule,
            running=state.running,
            started=state.started,
            until=state.until,
            overridden=state.scope in overrides,
            declared=declared.get(state.scope),
        )
        for state in await store.limits()
    ]


async def set_limit(
    store: Store,
    scope: str,
    *,
    concurrency: int | None = None,
    rate: int | None = None,
    per: Span = timedelta(seconds=1),
    burst: int | None = None,
) -> LimitInfo:
    """Set a limit; it holds until it is lifted, whatever the code declares."""
    check_scope(store, scope)
    rule = _rule(concurrency, rate, per, burst)
    await _must_be_own(store, scope)
    await _keep(store, LIMIT_OVERRIDES, scope, _override(rule, _namespace(store)))
    await store.limit(scope, rule)
    return await _state(store, scope, rule)


async def lift_limit(store: Store, scope: str) -> LimitInfo | None:
    """Lift a limit that was set at run time; return what the code declares, if it does."""
    check_scope(store, scope)
    await _must_be_own(store, scope)
    await store.keep([RecordWrite(kind=LIMIT_OVERRIDES, key=scope, data=None)])
    (record,) = await store.records(LIMIT_DECLARATIONS, [scope])
    declared = next(iter(readable([record] if record else [], _decoded)), None)
    await store.limit(scope, declared[1] if declared else None)
    return await _state(store, scope, declared[1]) if declared else None


async def _must_be_own(store: Store, scope: str) -> None:
    """ForbiddenError when a namespace would change a limit that was set from outside of it."""
    (record,) = await store.records(LIMIT_OVERRIDES, [scope])
    if record is None or not (namespace := _namespace(store)):
        return
    override = next(iter(readable([record.data], _overrides.decode)), None)
    if override is not None and override.namespace != namespace:
        raise ForbiddenError(f"{scope!r:.140} was limited by an operator of the whole store")


def _namespace(store: Store) -> str:
    return store.namespace if isinstance(store, TenantStore) else ""


async def declare_limits(store: Store, rules: Mapping[str, LimitRule]) -> None:
    """Set the limits that code declares, except where an operator has set another."""
    if not rules:
        return
    records = await store.records(LIMIT_DECLARATIONS, list(rules))
    known = dict(readable([each for each in records if each], _decoded))
    for scope, rule in rules.items():
        if known.get(scope) != rule:
            await _keep(store, LIMIT_DECLARATIONS, scope, rule)
    overridden = await store.records(LIMIT_OVERRIDES, list(rules))
    for (scope, rule), override in zip(rules.items(), overridden, strict=True):
        if override is None:
            await store.limit(scope, rule)


async def restore_overrides(store: Store) -> int:
    """Set overrides again that a worker of another version has undone; return how many."""
    overrides = await _rules(store, LIMIT_OVERRIDES)
    if not overrides:
        return 0
    in_force = {state.scope: state.rule for state in await store.limits()}
    undone = {s: rule for s, rule in overrides.items() if in_force.get(s) != rule}
    for scope, rule in undone.items():
        try:
            await store.limit(scope, rule)
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the others are restored
            await set_aside(store, f"limit {scope}", error)
    return len(undone)


async def _state(store: Store, scope: str, rule: LimitRule) -> LimitInfo:
    found = {state.scope: state for state in await limit_states(store)}
    return found.get(scope, LimitInfo(scope=scope, rule=rule))


async def _rules(store: Store, kind: str) -> dict[str, LimitRule]:
    return dict(readable(await every_record(store, kind), _decoded))


async def _keep(store: Store, kind: str, scope: str, rule: LimitRule) -> None:
    data = msgspec.json.encode(rule)
    await store.keep([RecordWrite(kind=kind, key=scope, data=data)])


def _override(rule: LimitRule, namespace: str) -> LimitOverride:
    return LimitOverride(
        concurrency=rule.concurrency,
        rate=rule.rate,
        per=rule.per,
        burst=rule.burst,
        namespace=namespace,
    )


_overrides = msgspec.json.Decoder(LimitOverride)


def _decoded(record: Record) -> tuple[str, LimitRule]:
    """Return a scope and its rule; an error when no caller could have set it."""
    if not SCOPE_RULE.fullmatch(record.key):
        raise ValueError("not a scope")
    rule = msgspec.json.decode(record.data, type=LimitRule)
    return record.key, _rule(rule.concurrency, rule.rate, rule.per, rule.burst)


def name_in(scope: str) -> tuple[str, str]:
    """Return what a scope limits, ``queue``, ``task`` or ``key``, and its name."""
    kind, _, name = scope.partition(":")
    return kind, name


def check_scope(store: Store, scope: object) -> None:
    """ValidationError when a store has no such scope, or a namespace may not limit it."""
    if not isinstance(scope, str) or not SCOPE_RULE.fullmatch(scope):
        message = f"must be queue:NAME, task:TYPE or key:TYPE, got {shown(scope)}"
        raise ValidationError([Fault("scope", "INVALID", message)])
    if _namespace(store) and not scope.startswith("queue:"):
        message = "must be queue:NAME in a namespace: types span namespaces"
        raise ValidationError([Fault("scope", "INVALID", message)])
    kind, name = name_in(scope)
    any_name = store.capabilities.bullmq_names
    rule = BULLMQ_NAME_RULE if any_name else TYPE_RULE
    if kind == "queue":
        rule = store.capabilities.queue_rule
        if not isinstance(store, TenantStore):  # the whole store has all namespaces
            name = name.partition(DIVIDER)[2] if DIVIDER in name else name
    if not rule.fullmatch(name):
        message = f"must name a {kind} that matches {rule.pattern}, got {shown(name)}"
        raise ValidationError([Fault("scope", "INVALID", message)])


def _rule(concurrency: object, rate: object, per: Span, burst: object) -> LimitRule:
    faults: list[Fault] = []
    span = None
    try:
        span = parse_duration(per)
    except ValueError as error:
        faults.append(Fault("per", "INVALID", str(error)))
    micros = None if span is None else span // timedelta(microseconds=1)
    faults += limit_faults(concurrency=concurrency, rate=rate, burst=burst, per=micros)
    if faults:
        raise ValidationError(faults)
    terms = {"concurrency": concurrency, "rate": rate, "per": span, "burst": burst}
    return msgspec.convert(terms, LimitRule)
