"""Cron schedules: the instants of a cron expression in its time zone.

With every hour, or with intervals (a ``*`` or ``/`` in minutes or hours), ticks go on in a local
time that happens twice. Without, such a time fires once. Local times that a change skips fire once,
right after it, unless the expression has every hour.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import islice, takewhile
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


EVERY_HOUR = 24
WITHOUT_SECONDS = 5
MOST_AT_ONCE = 1000

LATE = timedelta(seconds=10)
"""A change of the leader takes two seconds; what passed meanwhile was not missed."""

SKIPPED_AFTER = timedelta(minutes=1)
LAST_DAY = datetime(9999, 12, 30, tzinfo=UTC)
LOOKS_BACK = [timedelta(minutes=1), timedelta(hours=1), timedelta(days=1), timedelta(days=32)]


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
    after = after.astimezone(UTC)  # a sum of local times would not count elapsed time
    zone, simulated = _zone(entry), _simulated(entry, after)
    if len(simulated.hours) == EVERY_HOUR:
        ticks = _elapsed(entry, zone, after)
    elif _counts_intervals(simulated):
        ticks = _with_skipped(entry, zone, after)
    else:
        ticks = (_first_moment(tick, zone) for tick in _simulated(entry, _local(after, zone)))
    last = after
    for instant in ticks:
        if instant > last:
            last = instant
            yield instant


def due_instants(
    entry: CronEntry,
    *,
    last: datetime | None,
    now: datetime,
    until: datetime | None = None,
    most: int = MOST_AT_ONCE,
) -> list[datetime]:
    """Return the instants to submit now, given the last one that was submitted.

    A new schedule starts with its next instant. Instants of the last seconds are late, as when
    another worker takes over the lead, and all of them are due. An older one counts as missed.
    ``until`` is when the schedule ended, if it did before now.
    """
    if last is None:
        return []
    end = now if until is None else min(now, until)
    passed = list(islice(_until(entry, last, end), most))
    if entry.missed is MissedRuns.ALL or (passed and now - passed[0] < LATE):
        return passed
    newest = _newest(entry, last, end) if passed else None
    if newest is None or (entry.missed is MissedRuns.SKIP and now - newest >= SKIPPED_AFTER):
        return []
    return [newest]


_STEP = re.compile(r"\*/([2-9]|[1-5]\d)\s", re.ASCII)
_EACH = re.compile(r"^Every \w+ (minute|second)(?: of every (?:hour|minute)\b|(?= from \d\d:\d\d))")
"""What cronsim calls every second, third or fifth minute."""


def in_words(entry: CronEntry) -> str:
    """Return the expression of a schedule in words, without its time zone."""
    words = _simulated(entry, datetime(2026, 1, 1, tzinfo=UTC)).explain()
    step = _STEP.match(entry.expression)
    if step is None or 60 % int(step[1]):
        return words
    return _EACH.sub(rf"Every {int(step[1])} \1s", words)


def _newest(entry: CronEntry, last: datetime, now: datetime) -> datetime | None:
    """The newest instant until now; looks back further and further, so that it reads few."""
    for back in LOOKS_BACK:
        if now - back <= last:
            break
        for newest in deque(_until(entry, now - back, now), maxlen=1):
            return newest
    return next(iter(deque(_until(entry, last, now), maxlen=1)), None)


def _until(entry: CronEntry, after: datetime, now: datetime) -> Iterator[datetime]:
    return takewhile(lambda instant: instant <= now, instants(entry, after=after))


def _zone(entry: CronEntry) -> ZoneInfo:
    try:
        return ZoneInfo(entry.tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a folder of zones is not a zone
        message = f"must be a known time zone, got {entry.tz!r:.60}"
        raise ValidationError([Fault("tz", "INVALID", message)]) from None


def _simulated(entry: CronEntry, after: datetime) -> CronSim:
    """The ticks of an expression; with seconds, CronSim has no rules of its own for changes."""
    fields = entry.expression.split()
    expression = " ".join(["0", *fields] if len(fields) == WITHOUT_SECONDS else fields)
    try:
        return CronSim(expression, after)
    except CronSimError as error:
        message = f"must be a cron expression, got {entry.expression!r:.60}: {error}"
        raise ValidationError([Fault("expression", "INVALID", message)]) from None


def _counts_intervals(simulated: CronSim) -> bool:
    _, minute, hour, *_ = simulated.parts
    return any(sign in field for sign in "*/" for field in (minute, hour))


def _elapsed(entry: CronEntry, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Ticks in the order in which the clock on the wall shows their times, a time twice as well."""
    for tick in _simulated(entry, after.astimezone(zone)):
        yield tick.astimezone(UTC)


def _with_skipped(entry: CronEntry, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The same, and a tick right after a change that skipped one."""
    last = after
    for instant in _elapsed(entry, zone, after):
        for change, first, end in _gaps(zone, last, instant):
            skipped = next(_simulated(entry, first - timedelta(seconds=1)), end)
            if skipped < end:
                yield change
        yield instant
        last = instant


def _gaps(
    zone: ZoneInfo, start: datetime, end: datetime
) -> Iterator[tuple[datetime, datetime, datetime]]:
    """Changes of the clock that skip local times: the moment, the first and the next time."""
    for year in range(start.year, end.year + 1):
        for gap in _gaps_of_year(zone, year):
            if start < gap[0] <= end:
                yield gap


@lru_cache(maxsize=1024)
def _gaps_of_year(zone: ZoneInfo, year: int) -> tuple[tuple[datetime, datetime, datetime], ...]:
    """Those of one year. Expressions such as a 29th of February look at many years."""
    found = []
    start = datetime(year, 1, 1, tzinfo=UTC)
    while start.year == year and start < LAST_DAY:
        stop = start + timedelta(days=1)
        if _local(stop, zone) - _local(start, zone) > stop - start:
            change = _change(zone, start, stop)
            before = _local(change - timedelta(seconds=1), zone) + timedelta(seconds=1)
            found.append((change, before, _local(change, zone)))
        start = stop
    return tuple(found)


def _first_moment(local: datetime, zone: ZoneInfo) -> datetime:
    """The first moment when clocks show a local time; if none, when they skip it."""
    early, late = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return early if early <= late else _change(zone, late, early)


def _change(zone: ZoneInfo, start: datetime, end: datetime) -> datetime:
    """The moment of the one change of the clock after the start, until the end."""
    offset = start.astimezone(zone).utcoffset()
    while end - start > timedelta(seconds=1):
        middle = start + timedelta(seconds=(end - start) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == offset:
            start = middle
        else:
            end = middle
    return end


def _local(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)
