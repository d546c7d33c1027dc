"""Limits: what they allow, how much is used, what they hold back; set and lift at run time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.dashboard.formats import parse_span, plural, unit
from holdfast.dashboard.parts import ListPart, part_of
from holdfast.dashboard.visits import Action, ActionDone, ScreenRoute, Visit
from holdfast.errors import Fault, ForbiddenError, ValidationError
from holdfast.model.times import shown
from holdfast.operations.limits import LimitInfo
from holdfast.store import LimitRule

NAMED = 10
"""Queues that are named of those in which a limit holds jobs back."""
KINDS = (("queue", "all jobs of a queue"), ("task", "a type"), ("key", "each key of a type"))


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """One limit and how much of it is used."""

    limit: LimitInfo
    kind: str
    name: str
    words: str
    declared: str
    """What the code declares, in words."""
    is_full: bool
    held: tuple[tuple[str, int], ...]
    """Queues in which it holds ready jobs back, and how many are ready there."""
    more: int
    """How many such queues are not named."""


class LimitsView(msgspec.Struct, frozen=True, kw_only=True):
    """Every limit."""

    rows: tuple[LimitRow, ...]
    part: ListPart
    full: int
    overridden: int
    held: int
    kinds: tuple[tuple[str, str], ...]
    scope: str
    """The scope that the form starts with."""


def words(rule: LimitRule) -> str:
    """Return a rule in words: ``10 jobs at once, 100 starts per min, bursts of 10``."""
    parts = [f"{plural(rule.concurrency, 'job')} at once"] if rule.concurrency else []
    if rule.rate:
        parts.append(f"{plural(rule.rate, 'start')} per {unit(rule.per)}")
        if rule.burst and rule.burst > 1:
            parts.append(f"bursts of {rule.burst}")
    return ", ".join(parts)


async def limits(visit: Visit) -> LimitsView:
    """Return every limit, those that are used up first."""
    found = await visit.operations.limit_states()
    held: dict[str, list[tuple[str, int]]] = {}
    for queue in await visit.operations.queues() if found else ():
        for scope in queue.activity.held_back_by if queue.activity else ():
            held.setdefault(scope, []).append((queue.name, queue.activity.ready))  # type: ignore[union-attr]  # it is there: it named the scope
    full = {each.scope for each in found if _is_full(each)}
    order = sorted(found, key=lambda one: (one.scope not in held, one.scope not in full, one.scope))
    shown, part = part_of(visit, order)
    kinds = KINDS[:1] if visit.caller.namespace else KINDS
    return LimitsView(
        rows=tuple(_row(each, held.get(each.scope, []), each.scope in full) for each in shown),
        part=part,
        full=len(full),
        overridden=sum(each.overridden for each in found),
        held=sum(each.scope in held for each in found),
        kinds=kinds,
        scope=visit.asked("scope"),
    )


def _is_full(limit: LimitInfo) -> bool:
    rule = limit.rule
    full = (rule.concurrency or limit.running + 1) <= limit.running
    return full or (bool(rule.rate) and limit.started >= (rule.burst or 1))


def _row(limit: LimitInfo, held: Sequence[tuple[str, int]], is_full: bool) -> LimitRow:
    kind, _, name = limit.scope.partition(":")
    return LimitRow(
        limit=limit,
        kind=kind,
        name=name,
        words=words(limit.rule),
        declared=words(limit.declared) if limit.declared and limit.overridden else "",
        is_full=is_full,
        held=tuple(held[:NAMED]),
        more=max(0, len(held) - NAMED),
    )


async def set_limit(visit: Visit) -> ActionDone:
    """Set a limit; it holds until it is lifted, whatever the code declares."""
    scope = visit.given("scope")
    if not scope:
        scope = f"{visit.given('kind', 'queue')}:{visit.given('name')}"
    per = visit.given("per")
    span = parse_span(per) if per else timedelta(seconds=1)
    if not (visit.given("concurrency") or visit.given("rate")):
        message = "needs a number, unless Starts has one"
        raise ValidationError([Fault("concurrency", "REQUIRED", message)])
    if not span:
        message = f"must be like 1s, 1m or 1h, got {shown(per)}"
        raise ValidationError([Fault("per", "INVALID", message)])
    try:
        made = await visit.operations.set_limit(
            scope,
            concurrency=_whole(visit, "concurrency"),
            rate=_whole(visit, "rate"),
            per=span,
            burst=_whole(visit, "burst"),
        )
    except ForbiddenError as error:
        return ActionDone(message=f"Nothing was changed: {error}.", failed=True)
    return ActionDone(message=f"{scope} is limited to {words(made.rule)}, on all workers at once.")


async def lift(visit: Visit) -> ActionDone:
    """Lift a limit; what the code declares applies again."""
    scope = visit.given("scope")
    try:
        declared = await visit.operations.lift_limit(scope)
    except ForbiddenError as error:
        return ActionDone(message=f"Nothing was changed: {error}.", failed=True)
    if declared is None:
        return ActionDone(message=f"{scope} has no limit any more.")
    return ActionDone(message=f"{scope} is back to what the code declares: {words(declared.rule)}.")


def _whole(visit: Visit, name: str) -> int | None:
    given = visit.given(name).replace("\u202f", "").replace(" ", "")
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        message = f"must be a whole number, got {shown(given)}"
        raise ValidationError([Fault(name, "INVALID", message)])
    return int(given)


SCREENS = (
    ScreenRoute(
        path="/limits",
        title="Limits",
        template="limits.html",
        call="listLimits",
        view=limits,
        section="limits",
        reads=10,
    ),
)

ACTIONS = (
    Action(path="/limits/set", call="setLimit", run=set_limit),
    Action(path="/limits/lift", call="liftLimit", run=lift),
)
