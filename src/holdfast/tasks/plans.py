"""The plans of a schedule: what applied from which instant on, the newest last.

An edit adds a plan and keeps the one before it. So an instant that has passed when a schedule is
edited, and that no worker has served yet, is still served by the plan that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from holdfast.model.times import Instant
from holdfast.tasks.schedule import LATE, MOST_AT_ONCE, CronEntry, due_instants, instants

MOST_PLANS = 16
"""Plans kept of one schedule: each serves until the first look of a leader after its end."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule runs, from an instant on."""

    since: Instant
    paused: bool = False
    expression: str = ""
    """Empty: as the code declares it."""
    tz: str = ""


def planned(entry: CronEntry, plan: Plan) -> CronEntry:
    """Return a schedule as it runs by a plan."""
    if not plan.expression:
        return entry
    return replace(entry, expression=plan.expression, tz=plan.tz)


def with_plan(plans: Sequence[Plan], plan: Plan) -> tuple[Plan, ...]:
    """Return the plans of a schedule after an edit."""
    return (*plans, plan)[-MOST_PLANS:]


def due_of_plans(
    entry: CronEntry, plans: Sequence[Plan], *, last: datetime, now: datetime
) -> list[datetime]:
    """Return the instants to submit now, each by the plan that applied at the time."""
    found: list[datetime] = []
    for plan, start, end in _windows(plans, last, now):
        if not plan.paused:
            most = MOST_AT_ONCE - len(found)
            each = planned(entry, plan)
            found += due_instants(each, last=start, now=now, until=end, most=most)
    return found


def has_passed(entry: CronEntry, plans: Sequence[Plan], *, last: datetime, now: datetime) -> bool:
    """Whether an instant of the plans has passed since the last one."""
    return any(
        next(instants(planned(entry, plan), after=start)) <= end
        for plan, start, end in _windows(plans, last, now)
        if not plan.paused
    )


def upcoming(entry: CronEntry, plans: Sequence[Plan], *, after: datetime) -> Iterator[datetime]:
    """Yield the instants of the newest plan after a moment; none while it is paused."""
    if plans[-1].paused:
        return iter(())
    return instants(planned(entry, plans[-1]), after=after)


def _windows(
    plans: Sequence[Plan], last: datetime, now: datetime
) -> Iterator[tuple[Plan, datetime, datetime]]:
    """The plans that applied since the last instant, each with its part of the time.

    A plan that starts later than now dates from before the clock was set back: it applies.
    """
    ends = [min(now, plan.since) for plan in plans[1:]] + [now]
    for plan, end in zip(plans, ends, strict=True):
        start = last if plan.since > now + LATE else max(last, plan.since)
        if start < end:
            yield plan, start, end
