"""Reads time series: steps that are over from records, the newest from the measures themselves.

The leader sums up each minute, ten minutes and hour once. A week is then 168 small records,
however many jobs there were.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.measures import minute_of
from holdfast.model.reserved import SERIES, SERIES_ALL
from holdfast.model.series import Series, SeriesSlot, series_of, slots_of
from holdfast.model.statistics import Breakdown
from holdfast.model.times import Span, format_duration, parse_duration, shown
from holdfast.store import Record, Store
from holdfast.store.damage import readable
from holdfast.store.tenants import TenantStore

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LONGEST = timedelta(days=7)
PAGE = 500
MOST_NAMED = 100
"""Queues, or types, that a caller may name."""


class SeriesLevel(msgspec.Struct, frozen=True):
    """A step, in minutes, and how far its series reaches back."""

    prefix: str
    minutes: int
    reach: timedelta
    default_up_to: timedelta
    """The longest range for which it is the step by default."""


LEVELS = (
    SeriesLevel("m/", 1, 3 * HOUR, 2 * HOUR),
    SeriesLevel("t/", 10, 2 * DAY, DAY),
    SeriesLevel("h/", 60, LONGEST, LONGEST),
)

_slot = msgspec.json.Decoder(SeriesSlot)


async def series(
    store: Store,
    *,
    time_range: Span = HOUR,
    step: Span | None = None,
    queues: Sequence[str] = (),
    types: Sequence[str] = (),
    breakdown_by: Sequence[str] = (),
) -> Series:
    """Return the measures of a range up to now, step by step."""
    window = _window(time_range)
    level = _level(window, step)
    parts = _parts(breakdown_by)
    now = store.now()
    newest = minute_of(now) // level.minutes
    first = minute_of(now - window) // level.minutes
    return series_of(
        await slots(store, level, first, newest),
        first=first,
        points=newest - first + 1,
        minutes=level.minutes,
        queues=_names("queues", queues, needed=Breakdown.QUEUE in parts),
        types=_names("types", types, needed=Breakdown.TYPE in parts),
    )


async def slots(
    store: Store, level: SeriesLevel, first: int, newest: int
) -> Mapping[int, SeriesSlot]:
    """Return the steps from the first to the newest: recorded ones, then measured ones."""
    kinds = (SERIES,) if isinstance(store, TenantStore) else (SERIES, SERIES_ALL)
    found: dict[int, SeriesSlot] = {}
    for kind in kinds:
        records = await _browse(store, kind, level.prefix, slot_key(level, first))
        found |= readable(records, lambda record: (slot_number(record), _slot.decode(record.data)))
    measured = max([first, *(number + 1 for number in found)])
    since = timedelta(minutes=measured * level.minutes)
    window = timedelta(seconds=store.now().timestamp()) - since
    if window >= timedelta(0):
        readings = (await store.stats(window, by_minute=True)).readings
        found |= slots_of(readings, level.minutes)
    return found


async def _browse(store: Store, kind: str, prefix: str, first: str) -> list[Record]:
    found: list[Record] = []
    after = f"{first[:-1]}{chr(ord(first[-1]) - 1)}"
    while True:
        page = await store.browse(kind, prefix=prefix, after=after, limit=PAGE)
        found += page
        if len(page) < PAGE:
            return found
        after = page[-1].key


def slot_key(level: SeriesLevel, number: int) -> str:
    """Return the key of the record of a step."""
    return f"{level.prefix}{number:010d}"


def slot_number(record: Record) -> int:
    """Return the number of the step of a record; ValueError when it has none."""
    return int(record.key.partition("/")[2])


def _window(time_range: Span) -> timedelta:
    try:
        window = parse_duration(time_range)
    except ValueError as error:
        raise ValidationError([Fault("time_range", "INVALID_DURATION", str(error))]) from None
    if not timedelta(0) < window <= LONGEST:
        message = f"must be more than nothing and at most 7 days, got {format_duration(window)}"
        raise ValidationError([Fault("time_range", "OUT_OF_RANGE", message)])
    return window


def _level(window: timedelta, step: Span | None) -> SeriesLevel:
    if step is None:
        return next(level for level in LEVELS if window <= level.default_up_to)
    try:
        wanted = parse_duration(step)
    except ValueError as error:
        raise ValidationError([Fault("step", "INVALID_DURATION", str(error))]) from None
    for level in LEVELS:
        if wanted == timedelta(minutes=level.minutes):
            if window > level.reach:
                reach = format_duration(level.reach)
                message = f"of {level.minutes} min reaches {reach} back: choose a longer step"
                raise ValidationError([Fault("step", "OUT_OF_RANGE", message)])
            return level
    message = f"must be 1, 10 or 60 minutes, got {shown(step)}"
    raise ValidationError([Fault("step", "INVALID", message)])


def _parts(breakdown_by: Sequence[str]) -> set[Breakdown]:
    allowed = {Breakdown.QUEUE.value: Breakdown.QUEUE, Breakdown.TYPE.value: Breakdown.TYPE}
    wrong = [word for word in breakdown_by if word not in allowed]
    if isinstance(breakdown_by, str) or wrong:
        message = f"must be QUEUE or TYPE, or both, got {shown(breakdown_by)}"
        raise ValidationError([Fault("breakdown_by", "INVALID", message)])
    return {allowed[word] for word in breakdown_by}


def _names(field: str, names: Sequence[str], *, needed: bool) -> Collection[str] | None:
    if isinstance(names, str) or len(names) > MOST_NAMED:
        message = f"must be a list of at most {MOST_NAMED} names, got {shown(names)}"
        raise ValidationError([Fault(field, "INVALID", message)])
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise ValidationError([Fault(field, "INVALID", f"must be names, got {shown(wrong[0])}")])
    return names if names or needed else None
