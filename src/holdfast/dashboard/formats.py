"""How values read: durations, counts and instants in the words of people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup

UNITS = (("d", 86_400), ("h", 3600), ("min", 60))
_SPAN = re.compile(r"(\d{1,6})\s*(s|m|min|h|d|w)?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800, None: 1}

_HIDDEN = {
    code: f"\\u{code:04x}"
    for code in (
        *range(0x09),
        *range(0x0B, 0x20),
        *range(0x7F, 0xA0),
        0x061C,
        *range(0x200B, 0x2010),
        *range(0x2028, 0x202F),
        *range(0x2060, 0x2070),
        0xFEFF,
        *range(0xFFF9, 0xFFFC),
    )
}


def visible(value: Any) -> Any:
    """Return a text with control, bidi and zero-width characters written as escapes."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return value if value.isascii() and value.isprintable() else value.translate(_HIDDEN)


def duration(span: timedelta | float | None) -> str:
    """Return a duration with the two units that matter: ``340 ms``, ``2 min 5 s``, ``3 d 4 h``."""
    if span is None:
        return ""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    whole = round(seconds)
    for place, (unit, size) in enumerate(UNITS):
        if whole >= size:
            smaller, of = (*UNITS, ("s", 1))[place + 1]
            rest = whole % size // of
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def unit(span: timedelta) -> str:
    """Return a duration as what follows *per*: ``min``, ``5 min``."""
    return re.sub(r"^1(?:\.0)? (?=\w+$)", "", duration(span))


def relative(at: datetime | None, now: datetime) -> str:
    """Return an instant as seen from now: ``5 min ago``, ``in 3 h``, ``now``."""
    if at is None:
        return ""
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    unit, size = next(((u, s) for u, s in UNITS if abs(seconds) >= s), ("s", 1))
    text = f"{int(abs(seconds) // size)} {unit}"
    return f"{text} ago" if seconds > 0 else f"in {text}"


def passed(at: datetime, now: datetime) -> str:
    """Return the time since an instant in its largest unit: ``42 s``, ``5 min``."""
    seconds = max(0.0, (now - at).total_seconds())
    unit, size = next(((u, s) for u, s in UNITS if seconds >= s), ("s", 1))
    return f"{int(seconds // size)} {unit}"


def instant(at: datetime | None) -> str:
    """Return an instant in full, as for people."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def iso(at: datetime | None) -> str:
    """Return an instant in full, as for programs."""
    return "" if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def clock_time(at: datetime | None) -> str:
    """Return the time of day of an instant."""
    return "" if at is None else f"{at.astimezone(UTC):%H:%M:%S}"


def count(number: float) -> str:
    """Return a whole number with thin spaces between the thousands."""
    return f"{number:,.0f}".replace(",", "\u202f")


def short(number: float) -> str:
    """Return a large number in a few characters: ``12.4k``, ``3.1M``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            scaled = number / (1e3 if unit == "k" else size)
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"
    return count(number)


def per_minute(series: Sequence[int]) -> str:
    """Return how often something happened in an hour of minutes: ``12/min``, ``5/h``."""
    total = sum(series)
    rate = total / max(1, len(series))
    if not total:
        return ""
    if rate < 0.095:
        return f"{count(total)}/h"
    return f"{rate:.1f}/min" if rate < 9.95 else f"{short(round(rate))}/min"


def byte_size(size: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    number, units = float(size), ["B", "KiB", "MiB", "GiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        del units[0]
    text = f"{number:.0f}" if number >= 99.95 else f"{number:.1f}".removesuffix(".0")
    return f"{text} {units[0]}"


def plural(number: float, noun: str) -> str:
    """Return a number with its noun: ``1 job``, ``2 jobs``."""
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


def short_id(job_id: str) -> str:
    """Return how a job's id begins, to search for it.

    Jobs that were submitted together share the first block of eight digits: four more follow.
    """
    return job_id if len(job_id) <= 16 else job_id[:13]


def parse_span(text: str) -> timedelta | None:
    """Read ``90``, ``15m``, ``2h`` or ``7d``; None when it is something else."""
    match = _SPAN.fullmatch(text.strip().lower())
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]]) if match else None
