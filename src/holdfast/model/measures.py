"""What a store counts as jobs change state: jobs per state now, and measures per minute."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.model.job import State

StatsWindow = timedelta | tuple[timedelta, timedelta]
"""How long ago a window begins that ends now; or how long ago it begins and ends."""

BUCKETS_PER_DOUBLING = 4
MICROSECOND = 1e-6


class Measure(StrEnum):
    """What a store counts per minute."""

    SUBMITTED = "submitted"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"
    RETRIED = "retried"
    WAIT = "wait"
    """Time from ready to claimed."""
    RUN = "run"
    """Time from claimed to settled."""


class Tally(msgspec.Struct, frozen=True):
    """How many jobs of one kind are in one state now."""

    queue: str
    type: str
    priority: int
    state: State
    count: int


class Reading(msgspec.Struct, frozen=True):
    """One bucket of one measure, summed over the requested window."""

    queue: str
    type: str
    priority: int
    measure: Measure
    bucket: int
    count: int
    top: float
    """The largest value in the bucket, in seconds; 0 for plain counts."""
    minute: int = 0
    """Of which minute, counted from the epoch, if minutes were requested one by one."""


class Stats(msgspec.Struct, frozen=True):
    """The raw counters; ``statistics.summarise`` turns them into statistics."""

    tallies: tuple[Tally, ...]
    readings: tuple[Reading, ...]


def bucket_of(seconds: float) -> int:
    """Return the logarithmic bucket of a duration: four per doubling, so within 19 %."""
    return max(
        0, math.ceil(math.log2(max(seconds, MICROSECOND) / MICROSECOND) * BUCKETS_PER_DOUBLING)
    )


def minute_of(at: datetime) -> int:
    """Return the minute of an instant, counted from the epoch."""
    return int(at.timestamp() // 60)


def minutes_of(window: StatsWindow, now: datetime) -> tuple[int, int]:
    """Return the first and the last minute that overlap a window."""
    begin, end = window if isinstance(window, tuple) else (window, timedelta(0))
    return minute_of(now - begin), minute_of(now - end)
