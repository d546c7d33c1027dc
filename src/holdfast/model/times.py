"""Reads and writes durations and timestamps: seconds, ``timedelta`` or ISO 8601.

Inside, spans are ``timedelta`` and times are aware UTC ``datetime``. No span is longer than a
century, so that adding one to the present time does not overflow in any store.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

Span = int | float | str | timedelta
"""What a caller may give for a duration."""

Moment = str | datetime
"""What a caller may give for a point in time."""

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time in a record: one without a time zone could not be compared with the others."""

CENTURY = timedelta(days=36_525)

_DURATION = re.compile(
    r"P(?:(?P<weeks>\d{1,9}(?:\.\d{1,9})?)W)?(?:(?P<days>\d{1,9}(?:\.\d{1,9})?)D)?"
    r"(?:T(?:(?P<hours>\d{1,9}(?:\.\d{1,9})?)H)?(?:(?P<minutes>\d{1,9}(?:\.\d{1,9})?)M)?"
    r"(?:(?P<seconds>\d{1,12}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)
_SHORT = re.compile(r"(?P<number>\d{1,12}(?:\.\d{1,9})?) ?(?P<unit>ms|s|m|min|h|d)?", re.ASCII)
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
"""What a person may write behind a number on the command line and in settings."""
_CALENDAR = re.compile(r"P[^T]*[YM]", re.ASCII)


def parse_duration(value: object) -> timedelta:
    """Read a duration from 0 to a century; ValueError says what is wrong with it."""
    if isinstance(value, timedelta):
        span = value
    elif isinstance(value, str):
        span = _parse_iso(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        span = _from_seconds(value)
    else:
        raise ValueError(
            f"must be seconds, a timedelta or an ISO 8601 duration, got {shown(value)}"
        )
    if span < timedelta(0):
        raise ValueError(f"must not be negative, got {shown(value)}")
    if span > CENTURY:
        raise ValueError(f"must not be longer than a century, got {shown(value)}")
    return span


def parse_span(value: object) -> timedelta:
    """Read a duration of the command line or of settings, which may be short: ``30s``, ``5m``."""
    if not isinstance(value, str):
        return parse_duration(value)
    if short := _SHORT.fullmatch(value):
        try:
            span = float(short["number"]) * _UNITS[short["unit"] or "s"]
        except OverflowError:
            span = timedelta.max
        if span > CENTURY:
            raise ValueError(f"must not be longer than a century, got {shown(value)}")
        return span
    if _DURATION.fullmatch(value) or _CALENDAR.match(value):
        return parse_duration(value)
    forms = "must be a duration: seconds, 30s, 5m, 1h, or ISO 8601 such as PT5M"
    raise ValueError(f"{forms}, got {shown(value)}")


def _parse_iso(text: str) -> timedelta:
    if _CALENDAR.match(text):
        raise ValueError(f"must not use years or months, got {shown(text)}")
    match = _DURATION.fullmatch(text)
    if match is None or text.endswith(("P", "T")):
        raise ValueError(f"must be an ISO 8601 duration such as PT5M, got {shown(text)}")
    units = {unit: float(number) for unit, number in match.groupdict().items() if number}
    try:
        return timedelta(**units)
    except OverflowError:
        return timedelta.max


def _from_seconds(value: float) -> timedelta:
    if value != value:  # noqa: PLR0124  # only NaN differs from itself; isnan() refuses long integers
        raise ValueError("must be a number, got nan")
    try:
        return timedelta(seconds=value)
    except OverflowError:
        return timedelta.max if value > 0 else timedelta.min


def format_duration(span: timedelta) -> str:
    """Write a duration as ISO 8601, to the microsecond."""
    micros = span // timedelta(microseconds=1)
    sign = "-" if micros < 0 else ""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{sign}PT{seconds}{tail}S"


def parse_timestamp(value: object) -> datetime:
    """Read a point in time with a time zone; ValueError says what is wrong with it."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"must be an ISO 8601 timestamp such as 2026-01-15T10:30:00Z, got {shown(value)}"
            ) from None
    elif isinstance(value, datetime):
        moment = value
    else:
        raise ValueError(f"must be a datetime or an ISO 8601 timestamp, got {shown(value)}")
    if moment.utcoffset() is None:
        raise ValueError(f"must carry a time zone, got {shown(value)}")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"must lie between the years 1 and 9999, got {shown(value)}") from None


def format_timestamp(moment: datetime) -> str:
    """Write a point in time as ISO 8601 UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def shown(value: object) -> str:
    """Describe any value in a message: short, and never raises."""
    match value:
        case str():
            return repr(value if len(value) <= 60 else value[:59] + "…")
        case int() if abs(value) >= 10**60:
            return "a very long integer"
        case bool() | int() | float() | None:
            return repr(value)
        case timedelta():
            return f"{value.total_seconds():g} s"
        case datetime():
            return value.isoformat()
        case _:
            return f"a {type(value).__name__}"
