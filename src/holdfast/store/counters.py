"""Counters and per-minute measures that stores update when jobs change state.

A batch is summed here first, so that a store writes a handful of rows for a thousand jobs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import attrgetter

from holdfast.model.job import Event, Job, State, Transition
from holdfast.model.measures import Measure, bucket_of, minute_of

_COUNTED = {
    State.COMPLETED: Measure.COMPLETED,
    State.FAILED: Measure.FAILED,
    State.DEAD_LETTER: Measure.DEAD_LETTER,
    State.CANCELLED: Measure.CANCELLED,
    State.RETRYING: Measure.RETRIED,
}

TallyKey = tuple[str, str, int, State]
ReadingKey = tuple[int, str, str, int, Measure, int]
_Kind = tuple[str, str, int, int]
"""Queue, type, priority before and after."""
_Span = tuple[Measure, datetime, datetime]
"""What is measured, from when, and until when."""
_Move = tuple[_Kind, State | None, State, int, _Span | None]
"""Which jobs, from, to, in which minute, and what is measured."""

_KIND = attrgetter("queue", "type", "priority")
_WAITED = attrgetter("queue", "type", "priority", "scheduled_at")
_RAN = attrgetter("queue", "type", "priority", "state", "updated_at", "started_at")


class Counters:
    """What one batch of state changes adds to the counters.

    Jobs of a batch mostly make the same move in the same minute: equal moves are only counted
    as they come, and summed up when ``tallies`` or ``readings`` is read.
    """

    def __init__(self) -> None:
        self._moves: defaultdict[_Move, int] = defaultdict(int)
        self._tallies: defaultdict[TallyKey, int] = defaultdict(int)
        self._readings: dict[ReadingKey, tuple[int, float]] = {}

    @property
    def tallies(self) -> defaultdict[TallyKey, int]:
        """(queue, type, priority, state) -> change"""
        self._sum_up()
        return self._tallies

    @property
    def readings(self) -> dict[ReadingKey, tuple[int, float]]:
        """(minute, queue, type, priority, measure, bucket) -> (count, largest seconds)"""
        self._sum_up()
        return self._readings

    def moved(self, before: Job | None, after: Job) -> None:
        """Count every transition in the trail of a job that was written.

        The past of an adopted job is counted, not measured.
        """
        priority = before.priority if before else after.priority
        for edge in after.trail:
            self.count(before, after, edge, priority)
            priority = after.priority

    def added(self, jobs: Iterable[Job]) -> None:
        """Count new jobs by their present state."""
        new = Counter((_KIND(job), job.state, minute_of(job.created_at)) for job in jobs)
        for (kind, state, minute), count in new.items():
            self._tallies[*kind, state] += count
            self._read((minute, *kind, Measure.SUBMITTED, 0), count)

    def added_alike(
        self, kind: tuple[str, str, int], state: State, minutes: Mapping[int, int]
    ) -> None:
        """Count new jobs of one kind and one state by the minute of their submission."""
        for minute, count in minutes.items():
            self._tallies[*kind, state] += count
            self._read((minute, *kind, Measure.SUBMITTED, 0), count)

    def count(self, before: Job | None, after: Job, edge: Transition, priority: int) -> None:
        """Count one transition; ``priority`` is the one that the job had before it."""
        span = None
        if before is None:
            pass
        elif edge.event is Event.CLAIM:
            span = _span(Measure.WAIT, before.scheduled_at, edge.at)
        elif edge.from_state is State.RUNNING:
            span = _span(Measure.RUN, after.started_at, edge.at)
        kind = (after.queue, after.type, priority, after.priority)
        self._moves[kind, edge.from_state, edge.to_state, minute_of(edge.at), span] += 1

    def claimed(self, jobs: Iterable[Job], at: datetime) -> None:
        """Count jobs that ``claim`` moved from SCHEDULED to RUNNING."""
        minute = minute_of(at)
        for (queue, type_, priority, since), count in Counter(map(_WAITED, jobs)).items():
            kind, span = (queue, type_, priority, priority), _span(Measure.WAIT, since, at)
            self._moves[kind, State.SCHEDULED, State.RUNNING, minute, span] += count

    def ended(self, jobs: Iterable[Job]) -> None:
        """Count jobs that went from RUNNING to their present state and changed nothing else."""
        for (queue, type_, priority, state, at, since), count in Counter(map(_RAN, jobs)).items():
            kind, span = (queue, type_, priority, priority), _span(Measure.RUN, since, at)
            self._moves[kind, State.RUNNING, state, minute_of(at), span] += count

    def removed(self, job: Job) -> None:
        """Count a deleted job."""
        self._tallies[job.queue, job.type, job.priority, job.state] -= 1

    def amended(self, before: Job, after: Job) -> None:
        """Count a job whose priority changed, but not its state."""
        self._tallies[*_KIND(before), before.state] -= 1
        self._tallies[*_KIND(after), before.state] += 1

    def add(self, other: Counters) -> None:
        """Add the counts of another batch."""
        for move, count in other._moves.items():
            self._moves[move] += count
        for key, change in other._tallies.items():
            self._tallies[key] += change
        for reading, (count, top) in other._readings.items():
            self._read(reading, count, top)

    def _sum_up(self) -> None:
        for move, count in self._moves.items():
            (queue, type_, left, priority), before, after, minute, span = move
            kind = (queue, type_, priority)
            if before is not None:
                self._tallies[queue, type_, left, before] -= count
            else:
                self._read((minute, *kind, Measure.SUBMITTED, 0), count)
            self._tallies[*kind, after] += count
            if span is not None:
                measure, since, until = span
                seconds = (until - since).total_seconds()
                self._read((minute, *kind, measure, bucket_of(seconds)), count, seconds)
            if after in _COUNTED:
                self._read((minute, *kind, _COUNTED[after], 0), count)
        self._moves.clear()

    def _read(self, key: ReadingKey, count: int, seconds: float = 0.0) -> None:
        had, top = self._readings.get(key, (0, 0.0))
        self._readings[key] = (had + count, max(top, seconds))


def _span(measure: Measure, since: datetime | None, until: datetime) -> _Span | None:
    return None if since is None else (measure, since, until)
