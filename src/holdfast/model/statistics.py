"""Turns a store's counters into statistics: counts, rates and percentiles.

A percentile is the largest value in the bucket that holds its rank. So it is a time that was
measured, never below the exact one by nearest rank and at most 19 % above it (a bucket spans
a quarter of a doubling; below a microsecond, at most a microsecond above).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import accumulate

import msgspec

from holdfast.model.job import TERMINAL, Priority, State
from holdfast.model.measures import Measure, Reading, Stats, Tally, minute_of


class Breakdown(StrEnum):
    """What the counts can be broken down by."""

    QUEUE = "QUEUE"
    TYPE = "TYPE"
    PRIORITY = "PRIORITY"
    STATE = "STATE"


class LatencyStats(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took, over the window; None when nothing was measured."""

    count: int = 0
    p50: timedelta | None = None
    p90: timedelta | None = None
    p99: timedelta | None = None
    max: timedelta | None = None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs by state: the live ones as they are now, the ended ones over the window."""

    pending: int = 0
    scheduled: int = 0
    delayed: int = 0
    running: int = 0
    retrying: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0
    cancelled: int = 0


class QueueStats(Counts, frozen=True, kw_only=True):
    """Counts, rates and latencies of the queues. Rates are jobs per second."""

    time_range: timedelta = timedelta(0)
    """The window up to now over which ended jobs, rates and latencies are counted."""
    submitted: int = 0
    retried: int = 0
    submission_rate: float = 0.0
    completion_rate: float = 0.0
    failure_rate: float = 0.0
    queue_latency: LatencyStats = LatencyStats()
    execution_time: LatencyStats = LatencyStats()
    oldest_ready_seconds: float | None = None
    """How long the oldest ready job of any queue has been ready; None: no job is."""
    by_queue: Mapping[str, Counts] | None = None
    by_type: Mapping[str, Counts] | None = None
    by_priority: Mapping[str, Counts] | None = None
    by_state: Mapping[str, Counts] | None = None


def summarise(
    stats: Stats,
    *,
    window: timedelta,
    breakdown_by: Collection[Breakdown] = (),
    now: datetime | None = None,
) -> QueueStats:
    """Turn the counters that a store returned for ``window`` into statistics.

    A store counts by whole minutes and returns those that overlap the window. With ``now``,
    rates are taken over the time those minutes cover; without, over the window.
    """
    ended = _sums(stats.readings)
    seconds = _covered(window, now).total_seconds()
    failures = ended[Measure.FAILED] + ended[Measure.DEAD_LETTER]
    return QueueStats(
        **msgspec.structs.asdict(_counts(stats.tallies, stats.readings)),
        time_range=window,
        submitted=ended[Measure.SUBMITTED],
        retried=ended[Measure.RETRIED],
        submission_rate=ended[Measure.SUBMITTED] / seconds,
        completion_rate=ended[Measure.COMPLETED] / seconds,
        failure_rate=failures / seconds,
        queue_latency=latency(r for r in stats.readings if r.measure is Measure.WAIT),
        execution_time=latency(r for r in stats.readings if r.measure is Measure.RUN),
        by_queue=_by(lambda row: row.queue, stats) if Breakdown.QUEUE in breakdown_by else None,
        by_type=_by(lambda row: row.type, stats) if Breakdown.TYPE in breakdown_by else None,
        by_priority=_by(_level, stats) if Breakdown.PRIORITY in breakdown_by else None,
        by_state=_by_state(stats) if Breakdown.STATE in breakdown_by else None,
    )


def latency(readings: Iterable[Reading]) -> LatencyStats:
    """Return the percentiles of the buckets of one measure."""
    buckets: dict[int, tuple[int, float]] = {}
    for reading in readings:
        count, top = buckets.get(reading.bucket, (0, 0.0))
        buckets[reading.bucket] = (count + reading.count, max(top, reading.top))
    if not buckets:
        return LatencyStats()
    ordered = [buckets[bucket] for bucket in sorted(buckets)]
    reached = list(accumulate(count for count, _ in ordered))

    def at(share: float) -> timedelta:
        rank = bisect_left(reached, math.ceil(reached[-1] * share))
        return timedelta(seconds=ordered[rank][1])

    return LatencyStats(count=reached[-1], p50=at(0.5), p90=at(0.9), p99=at(0.99), max=at(1))


def _covered(window: timedelta, now: datetime | None) -> timedelta:
    """Return the time that the minutes cover that overlap a window ending now."""
    if now is None:
        return max(window, timedelta(seconds=1))
    start = minute_of(now - window) * 60
    return max(timedelta(seconds=now.timestamp() - start), timedelta(seconds=1))


def _sums(readings: Iterable[Reading]) -> Mapping[Measure, int]:
    sums: defaultdict[Measure, int] = defaultdict(int)
    for reading in readings:
        sums[reading.measure] += reading.count
    return sums


def _counts(tallies: Iterable[Tally], readings: Iterable[Reading]) -> Counts:
    counts = dict.fromkeys(Counts.__struct_fields__, 0)
    for tally in tallies:
        if tally.state not in TERMINAL:
            counts[tally.state.lower()] += tally.count
    for reading in readings:
        if reading.measure in _ENDINGS:
            counts[reading.measure] += reading.count
    return Counts(**counts)


_ENDINGS = frozenset({Measure.COMPLETED, Measure.FAILED, Measure.DEAD_LETTER, Measure.CANCELLED})


def _level(row: Tally | Reading) -> str:
    return Priority(min(row.priority, Priority.BULK)).name


def _by(key: Callable[[Tally | Reading], str], stats: Stats) -> dict[str, Counts]:
    tallies: defaultdict[str, list[Tally]] = defaultdict(list)
    readings: defaultdict[str, list[Reading]] = defaultdict(list)
    for tally in stats.tallies:
        tallies[key(tally)].append(tally)
    for reading in stats.readings:
        readings[key(reading)].append(reading)
    return {name: _counts(tallies[name], readings[name]) for name in sorted({*tallies, *readings})}


def _by_state(stats: Stats) -> dict[str, Counts]:
    """Return the count of each state as Counts, so that all breakdowns have one shape."""
    whole = _counts(stats.tallies, stats.readings)
    return {state: Counts(**{state.lower(): getattr(whole, state.lower())}) for state in State}
