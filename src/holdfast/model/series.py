"""Time series: what stores measure per minute, as counts and percentiles per step of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.model.measures import Measure, Reading
from holdfast.model.statistics import latency

MOST_NAMES = 200
"""Queues, and types, that one step names: those with the most jobs. The total has all jobs."""


class SeriesPoint(msgspec.Struct, frozen=True, array_like=True):
    """What happened in one step; the times are in seconds."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    wait_p50: float | None = None
    wait_p99: float | None = None
    run_p50: float | None = None
    run_p99: float | None = None


NOTHING = SeriesPoint()


class SeriesSlot(msgspec.Struct, frozen=True, array_like=True):
    """One step: all jobs, and those of each queue and each type."""

    total: SeriesPoint = NOTHING
    queues: Mapping[str, SeriesPoint] = {}
    types: Mapping[str, SeriesPoint] = {}


class SeriesLine(msgspec.Struct, frozen=True, kw_only=True):
    """One value per step, the oldest first."""

    submitted: tuple[int, ...]
    completed: tuple[int, ...]
    failed: tuple[int, ...]
    """Jobs that became FAILED or DEAD_LETTER."""
    cancelled: tuple[int, ...]
    retried: tuple[int, ...]
    """Attempts that failed and are repeated."""
    wait_p50: tuple[float | None, ...]
    """Seconds from ready to claimed; null where nothing was measured."""
    wait_p99: tuple[float | None, ...]
    run_p50: tuple[float | None, ...]
    """Seconds from claimed to settled; null where nothing was measured."""
    run_p99: tuple[float | None, ...]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Measures over time, up to now: the last step is not over."""

    since: datetime
    """When the first step begins."""
    step: timedelta
    """How long each step is."""
    points: int
    """How many steps there are."""
    total: SeriesLine
    """All jobs of all queues."""
    by_queue: Mapping[str, SeriesLine] | None = None
    by_type: Mapping[str, SeriesLine] | None = None


def slots_of(readings: Iterable[Reading], minutes: int) -> dict[int, SeriesSlot]:
    """Return the steps of so many minutes that readings by the minute belong to, by number."""
    slots: defaultdict[int, list[Reading]] = defaultdict(list)
    for reading in readings:
        slots[reading.minute // minutes].append(reading)
    return {number: slot_of(each) for number, each in slots.items()}


def slot_of(readings: Sequence[Reading]) -> SeriesSlot:
    """Return one step from its readings."""
    queues: defaultdict[str, list[Reading]] = defaultdict(list)
    types: defaultdict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        queues[reading.queue].append(reading)
        types[reading.type].append(reading)
    return SeriesSlot(_point(readings), _named(queues), _named(types))


def _named(groups: Mapping[str, Sequence[Reading]]) -> dict[str, SeriesPoint]:
    """Return the points of the busiest names."""
    points = {name: _point(readings) for name, readings in groups.items()}
    if len(points) <= MOST_NAMES:
        return points
    busiest = sorted(points, key=lambda name: (-_volume(points[name]), name))
    return {name: points[name] for name in busiest[:MOST_NAMES]}


def _volume(point: SeriesPoint) -> int:
    return point.submitted + point.completed + point.failed + point.cancelled


def _point(readings: Iterable[Reading]) -> SeriesPoint:
    by_measure: defaultdict[Measure, list[Reading]] = defaultdict(list)
    for reading in readings:
        by_measure[reading.measure].append(reading)
    counts = {name: sum(each.count for each in found) for name, found in by_measure.items()}
    wait, run = latency(by_measure[Measure.WAIT]), latency(by_measure[Measure.RUN])
    return SeriesPoint(
        counts.get(Measure.SUBMITTED, 0),
        counts.get(Measure.COMPLETED, 0),
        counts.get(Measure.FAILED, 0) + counts.get(Measure.DEAD_LETTER, 0),
        counts.get(Measure.CANCELLED, 0),
        counts.get(Measure.RETRIED, 0),
        _seconds(wait.p50),
        _seconds(wait.p99),
        _seconds(run.p50),
        _seconds(run.p99),
    )


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def series_of(
    slots: Mapping[int, SeriesSlot],
    *,
    first: int,
    points: int,
    minutes: int,
    queues: Collection[str] | None,
    types: Collection[str] | None,
) -> Series:
    """Return consecutive steps as lines; of queues and types those named, all if none is.

    None for ``queues`` or ``types`` leaves that part out.
    """
    steps = [slots.get(number, _EMPTY) for number in range(first, first + points)]
    return Series(
        since=datetime.fromtimestamp(first * minutes * 60, UTC),
        step=timedelta(minutes=minutes),
        points=points,
        total=_line([step.total for step in steps]),
        by_queue=None if queues is None else _lines([step.queues for step in steps], queues),
        by_type=None if types is None else _lines([step.types for step in steps], types),
    )


_EMPTY = SeriesSlot()


def _lines(
    steps: Sequence[Mapping[str, SeriesPoint]], names: Collection[str]
) -> dict[str, SeriesLine]:
    wanted = sorted(names or {name for step in steps for name in step})
    return {name: _line([step.get(name, NOTHING) for step in steps]) for name in wanted}


def _line(points: Sequence[SeriesPoint]) -> SeriesLine:
    columns = {
        name: tuple([getattr(point, name) for point in points])
        for name in SeriesPoint.__struct_fields__
    }
    return SeriesLine(**columns)
