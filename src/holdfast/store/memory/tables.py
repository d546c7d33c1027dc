"""Everything the memory store knows, and how it forgets."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime

from holdfast.model.job import (
    TERMINAL,
    DedupeKey,
    DependencyKind,
    Job,
    LogLine,
    Progress,
    State,
    Transition,
)
from holdfast.model.policy import Retention
from holdfast.store._ledger import Ledger, ReadingKey, TallyKey
from holdfast.store._shapes import EventKind, Fence, Hold, JobEvent, LimitRule


class Tables:
    """Everything the memory store knows."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.numbers: dict[str, int] = {}
        """Submission order."""
        self.moved: dict[str, int] = {}
        """The number of each job's newest transition event."""
        self.ready: dict[str, tuple[int, int]] = {}
        """SCHEDULED jobs: (level after ageing, place in the queue)."""
        self.history: defaultdict[str, list[Transition]] = defaultdict(list)
        self.logs: defaultdict[str, list[LogLine]] = defaultdict(list)
        self.edges: defaultdict[str, dict[str, State | None]] = defaultdict(dict)
        """Child -> parent -> how the parent ended; None while it is open."""
        self.children: defaultdict[str, set[str]] = defaultdict(set)
        self.keys: dict[tuple[str, str], tuple[DedupeKey, str]] = {}
        self.events: list[JobEvent] = []
        self.tallies: Counter[TallyKey] = Counter()
        self.readings: dict[ReadingKey, tuple[int, float]] = {}
        self.settings: defaultdict[str, dict[str, object]] = defaultdict(dict)
        self.holds: dict[str, Hold] = {}
        self.rules: dict[str, LimitRule] = {}
        self.windows: dict[str, tuple[int, datetime]] = {}
        """Scope -> (claims in the newest rate window, its end)."""
        self.sequence = 0
        self.places = 0
        self.told = 0

    def spawned_by(self, job_id: str) -> Iterator[str]:
        """Everything a job spawned, and what that spawned, in order of submission."""
        for child in [job.id for job in self.jobs.values() if job.spawned_by == job_id]:
            yield child
            yield from self.spawned_by(child)

    def waiting_fan_in(self, job_id: str) -> list[str]:
        """PENDING jobs that wait for a job and everything it spawns."""
        return [
            child
            for child in self.children.get(job_id, ())
            if self.jobs[child].dependency_kind is DependencyKind.FAN_IN
            and self.jobs[child].state is State.PENDING
        ]

    def is_held(self, fence: Fence) -> bool:
        """Whether a lease is the newest on a running job."""
        job = self.jobs.get(fence.job_id)
        if job is None or job.lease is None or job.state is not State.RUNNING:
            return False
        return job.lease.token == fence.token

    def is_waiting(self, job_id: str) -> bool:
        """Whether a job still waits for its dependencies."""
        return self.jobs[job_id].state is State.PENDING

    def is_needed(self, job_id: str) -> bool:
        """Whether a live job depends on this one."""
        return any(self.jobs[c].state not in TERMINAL for c in self.children.get(job_id, ()))

    def outlived(self, retention: Retention, now: datetime) -> list[str]:
        """Ended jobs past their retention that no live job needs, oldest first."""
        keep = {
            State.COMPLETED: retention.completed,
            State.FAILED: retention.failed,
            State.DEAD_LETTER: retention.dead_letter,
            State.CANCELLED: retention.cancelled,
        }
        old = sorted(
            (job.finished_at, self.numbers[job.id], job.id)
            for job in self.jobs.values()
            if job.finished_at is not None
            and (span := keep[job.state]) is not None
            and job.finished_at + span <= now
            and not self.is_needed(job.id)
        )
        return [job_id for _, _, job_id in old]

    def count(self, ledger: Ledger) -> None:
        """Add a batch's moves to the counters."""
        for key, change in ledger.tallies.items():
            self.tallies[key] += change
        for reading, (count, top) in ledger.readings.items():
            had, highest = self.readings.get(reading, (0, 0.0))
            self.readings[reading] = (had + count, max(highest, top))

    def tell(self, job: Job, what: Transition | Progress) -> None:
        """Append to the event stream."""
        self.told += 1
        moved = what if isinstance(what, Transition) else None
        if moved is not None:
            self.moved[job.id] = self.told
        self.events.append(
            JobEvent(
                cursor=str(self.told),
                job_id=job.id,
                type=job.type,
                queue=job.queue,
                kind=EventKind.TRANSITION if moved else EventKind.PROGRESS,
                at=what.at,
                transition=moved,
                progress=what if isinstance(what, Progress) else None,
            )
        )

    def forget(self, job_id: str) -> None:
        """Drop a job and what lives only as long as it; its events go with time."""
        job = self.jobs.pop(job_id)
        for place in (self.numbers, self.moved, self.history, self.logs, self.children):
            place.pop(job_id, None)
        for parent in self.edges.pop(job_id, {}):
            if parent in self.children:
                self.children[parent].discard(job_id)
        if job.dedupe is not None:
            place_of_key = (job.dedupe.scope, job.dedupe.key)
            if self.keys.get(place_of_key, (None, ""))[1] == job_id:
                del self.keys[place_of_key]

    def expire_keys(self, now: datetime) -> None:
        """Drop keys whose window is over."""
        over = [
            place
            for place, (key, _) in self.keys.items()
            if key.expires_at is not None and key.expires_at <= now
        ]
        for place in over:
            del self.keys[place]

    def trim(self, events_kept: int, first_minute: int) -> None:
        """Drop old events and measures."""
        del self.events[: max(0, len(self.events) - events_kept)]
        for key in [key for key in self.readings if key[0] < first_minute]:
            del self.readings[key]
