"""Bookkeeping that every store does as jobs move: counters and per-minute measures.

A batch is summed here first, so that a store writes a handful of rows for a thousand jobs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import datetime

from holdfast.job import Event, Job, State, Transition
from holdfast.store._shapes import Measure

BUCKETS_PER_DOUBLING = 4
MICROSECOND = 1e-6

_COUNTED = {
    State.COMPLETED: Measure.COMPLETED,
    State.FAILED: Measure.FAILED,
    State.DEAD_LETTER: Measure.DEAD_LETTER,
    State.CANCELLED: Measure.CANCELLED,
    State.RETRYING: Measure.RETRIED,
}

TallyKey = tuple[str, str, int, State]
ReadingKey = tuple[int, str, str, int, Measure, int]


class Ledger:
    """What one batch of moves adds to the counters."""

    def __init__(self) -> None:
        self.tallies: defaultdict[TallyKey, int] = defaultdict(int)
        self.readings: dict[ReadingKey, tuple[int, float]] = {}
        """(minute, queue, type, priority, measure, bucket) -> (count, largest seconds)"""

    def moved(self, before: Job | None, after: Job) -> None:
        """Count every transition in the trail of a job that was written."""
        priority = before.priority if before else after.priority
        for edge in after.trail:
            self.count(before or after, after, edge, priority)
            priority = after.priority

    def count(self, before: Job, after: Job, edge: Transition, priority: int) -> None:
        """Count one transition; ``priority`` is the one the job left its old state with."""
        if edge.from_state is not None:
            self.tallies[after.queue, after.type, priority, edge.from_state] -= 1
        else:
            self._read(after, Measure.SUBMITTED, edge.at)
        self.tallies[after.queue, after.type, after.priority, edge.to_state] += 1
        if edge.event is Event.CLAIM and before.scheduled_at is not None:
            waited = (edge.at - before.scheduled_at).total_seconds()
            self._read(after, Measure.WAIT, edge.at, waited)
        elif edge.from_state is State.RUNNING and after.started_at is not None:
            ran = (edge.at - after.started_at).total_seconds()
            self._read(after, Measure.RUN, edge.at, ran)
        if edge.to_state in _COUNTED:
            self._read(after, _COUNTED[edge.to_state], edge.at)

    def claimed(self, job: Job, at: datetime) -> None:
        """Count a job that a store itself moved from SCHEDULED to RUNNING."""
        self.shifted(job.queue, job.type, job.priority, State.SCHEDULED, State.RUNNING)
        if job.scheduled_at is not None:
            self._read(job, Measure.WAIT, at, (at - job.scheduled_at).total_seconds())

    def shifted(self, queue: str, type_: str, priority: int, before: State, after: State) -> None:
        """Count a job in another state, with nothing to measure."""
        self.tallies[queue, type_, priority, before] -= 1
        self.tallies[queue, type_, priority, after] += 1

    def removed(self, job: Job) -> None:
        """Count a job that was deleted."""
        self.tallies[job.queue, job.type, job.priority, job.state] -= 1

    def add(self, other: Ledger) -> None:
        """Take over what another batch of moves adds."""
        for key, change in other.tallies.items():
            self.tallies[key] += change
        for reading, (count, top) in other.readings.items():
            had, highest = self.readings.get(reading, (0, 0.0))
            self.readings[reading] = (had + count, max(highest, top))

    def _read(self, job: Job, measure: Measure, at: datetime, seconds: float | None = None) -> None:
        bucket = 0 if seconds is None else bucket_of(seconds)
        key = (minute_of(at), job.queue, job.type, job.priority, measure, bucket)
        count, top = self.readings.get(key, (0, 0.0))
        self.readings[key] = (count + 1, max(top, seconds or 0.0))


def bucket_of(seconds: float) -> int:
    """Return the logarithmic bucket of a duration: four per doubling, so within 19 %."""
    return max(
        0, math.ceil(math.log2(max(seconds, MICROSECOND) / MICROSECOND) * BUCKETS_PER_DOUBLING)
    )


def minute_of(at: datetime) -> int:
    """Return the minute, counted from the epoch, in which an instant lies."""
    return int(at.timestamp() // 60)
