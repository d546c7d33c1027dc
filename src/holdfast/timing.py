"""Durations and timestamps at the edges: seconds, ``timedelta`` or ISO 8601 in, values out.

Inside, spans are ``timedelta`` and times are aware UTC ``datetime``.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

Span = int | float | str | timedelta
"""What a caller may give for a duration."""

Moment = str | datetime
"""What a caller may give for a point in time."""

_DURATION = re.compile(
    r"P(?:(?P<weeks>\d{1,9}(?:\.\d{1,9})?)W)?(?:(?P<days>\d{1,9}(?:\.\d{1,9})?)D)?"
    r"(?:T(?:(?P<hours>\d{1,9}(?:\.\d{1,9})?)H)?(?:(?P<minutes>\d{1,9}(?:\.\d{1,9})?)M)?"
    r"(?:(?P<seconds>\d{1,12}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)
_CALENDAR = re.compile(r"P[^T]*[YM]", re.ASCII)


def parse_duration(value: Span) -> timedelta:
    """Read a non-negative duration; ValueError says what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | timedelta):
        raise ValueError(f"must be seconds, a timedelta or an ISO 8601 duration, got {value!r:.60}")
    if isinstance(value, str):
        span = _parse_iso(value)
    elif isinstance(value, timedelta):
        span = value
    elif not math.isfinite(value):
        raise ValueError(f"must be finite, got {value}")
    else:
        span = _from_seconds(value)
    if span < timedelta(0):
        raise ValueError(f"must not be negative, got {value}")
    return span


def _parse_iso(text: str) -> timedelta:
    if _CALENDAR.match(text):
        raise ValueError(f"must not use years or months, got {text!r:.60}")
    match = _DURATION.fullmatch(text)
    if match is None or text.endswith(("P", "T")):
        raise ValueError(f"must be an ISO 8601 duration such as PT5M, got {text!r:.60}")
    try:
        return timedelta(**{unit: float(n) for unit, n in match.groupdict().items() if n})
    except OverflowError:
        raise ValueError(f"is too long, got {text!r:.60}") from None


def _from_seconds(value: float) -> timedelta:
    try:
        return timedelta(seconds=value)
    except OverflowError:
        raise ValueError(f"is too long, got {value!r:.60}") from None


def format_duration(span: timedelta) -> str:
    """Write a duration as ISO 8601, to the microsecond."""
    micros = span // timedelta(microseconds=1)
    sign = "-" if micros < 0 else ""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{sign}PT{seconds}{tail}S"


def parse_timestamp(value: Moment) -> datetime:
    """Read a point in time with a time zone; ValueError says what is wrong with it."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"must be an ISO 8601 timestamp such as 2026-01-15T10:30:00Z, got {value!r:.60}"
            ) from None
    elif isinstance(value, datetime):
        moment = value
    else:
        raise ValueError(f"must be a datetime or an ISO 8601 timestamp, got {value!r:.60}")
    if moment.tzinfo is None:
        raise ValueError(f"must carry a time zone, got {value}")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"is out of range, got {value}") from None


def format_timestamp(moment: datetime) -> str:
    """Write a point in time as ISO 8601 UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
