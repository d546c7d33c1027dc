"""Cron schedules: the instants of a cron expression in its time zone.

A time that a change to summer time skips fires right after the change; one that happens twice
fires once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from holdfast.errors import Fault, ValidationError
from holdfast.model.submission import SubmitOptions

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class MissedRuns(StrEnum):
    """What happens to instants that passed while no worker ran."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class CronEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and what it submits."""

    name: str
    type: str
    expression: str
    tz: str
    missed: MissedRuns
    payload: object
    options: SubmitOptions


def cron_entry(  # one argument per field
    name: str,
    type_: str,
    expression: str,
    tz: str,
    missed: MissedRuns,
    payload: object,
    options: SubmitOptions,
) -> CronEntry:
    """Make a schedule; ValidationError when its expression or time zone is invalid."""
    entry = CronEntry(
        name=name,
        type=type_,
        expression=ALIASES.get(expression, expression),
        tz=tz,
        missed=missed,
        payload=payload,
        options=options,
    )
    next(instants(entry, after=datetime(2026, 1, 1, tzinfo=UTC)))
    return entry


def instants(entry: CronEntry, *, after: datetime) -> Iterator[datetime]:
    """Yield the instants of a schedule after a moment, in UTC."""
    try:
        zone = ZoneInfo(entry.tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a folder of zones is not a zone
        message = f"must be a known time zone, got {entry.tz!r:.60}"
        raise ValidationError([Fault("tz", "INVALID", message)]) from None
    try:
        ticks = CronSim(entry.expression, after.astimezone(zone))
    except CronSimError as error:
        message = f"must be a cron expression, got {entry.expression!r:.60}: {error}"
        raise ValidationError([Fault("expression", "INVALID", message)]) from None
    last = after
    for tick in ticks:
        instant = tick.astimezone(UTC)
        if instant > last:
            last = instant
            yield instant


def due_instants(
    entry: CronEntry, *, last: datetime | None, now: datetime, most: int = 1000
) -> list[datetime]:
    """Return the instants to submit now, given the last one that was submitted.

    A new schedule starts with its next instant. An instant more than a minute ago counts as
    missed.
    """
    if last is None:
        return []
    passed: list[datetime] = []
    for instant in instants(entry, after=last):
        if instant > now or len(passed) == most:
            break
        passed.append(instant)
    if entry.missed is MissedRuns.ALL:
        return passed
    if entry.missed is MissedRuns.ONE:
        return passed[-1:]
    return [instant for instant in passed[-1:] if now - instant < timedelta(minutes=1)]
