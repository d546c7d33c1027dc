"""The tables of the memory store, and the rules for adding, changing and deleting rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from holdfast.model.dependencies import end_on_retry
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
from holdfast.store.counters import Counters, ReadingKey, TallyKey
from holdfast.store.values import (
    Added,
    AddStatus,
    Change,
    EventKind,
    Fence,
    HeldKey,
    JobEvent,
    KeyPage,
    LimitRule,
    NamedLock,
    Record,
    RecordWrite,
    Swapped,
)

AMENDED = ("tags", "correlation_id", "callback_url", "priority", "due_at", "revision")
"""What ``amend`` writes."""


class Tables:
    """All data of the memory store."""

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
        self.locks: dict[str, NamedLock] = {}
        self.rules: dict[str, LimitRule] = {}
        self.windows: dict[str, tuple[int, datetime]] = {}
        """Scope -> what is recorded of its rate; see ``StartPace.recorded``."""
        self.sequence = 0
        self.places = 0
        self.newest_event = 0

    def children_of(self, job_id: str) -> list[str]:
        """Return the jobs that a job spawned itself, in order of submission."""
        return [job.id for job in self.jobs.values() if job.spawned_by == job_id]

    def followers(self, job_id: str) -> list[str]:
        """Return the jobs that are linked to a job they wait or waited for, by id."""
        return sorted(child for child in self.children.get(job_id, ()) if child in self.jobs)

    def spawned_by(self, job_id: str) -> Iterator[str]:
        """Yield all jobs that a job spawned, transitively, in order of submission."""
        for child in self.children_of(job_id):
            yield child
            yield from self.spawned_by(child)

    def waiting_fan_in(self, job_id: str) -> list[str]:
        """Return PENDING jobs that wait for a job and everything it spawns."""
        return [
            child
            for child in self.children.get(job_id, ())
            if self.jobs[child].dependency_kind is DependencyKind.FAN_IN
            and self.jobs[child].state is State.PENDING
        ]

    def link(self, child: str, parent: str) -> None:
        """Let a job wait for another, in any state of that one."""
        state = self.jobs[parent].state
        self.edges[child].setdefault(parent, state if state in TERMINAL else None)
        self.children[parent].add(child)
        if self._ended_before_retry(child, parent):  # only where jobs are adopted
            self.edges[child][parent] = end_on_retry(self.jobs[child].dependency_kind, state)

    def _ended_before_retry(self, child: str, parent: str) -> bool:
        job, ended = self.jobs[child], self.jobs[parent].finished_at
        is_retried = job.state is State.PENDING and job.generation > 1
        return is_retried and ended is not None and ended <= job.updated_at

    def link_spawned(self, job: Job, parent: str) -> None:
        """Let a FAN_IN wait for all that a job has spawned."""
        if job.dependency_kind is DependencyKind.FAN_IN:
            for spawned in self.spawned_by(parent):
                self.link(job.id, spawned)

    def wait_again(self, job: Job) -> bool:
        """Open the dependencies of a retried job again; return whether a verdict may be due."""
        for parent in job.depends_on:
            if parent in self.jobs:
                self.link_spawned(job, parent)
        edges = self.edges[job.id]
        for parent in edges:
            state = self.jobs[parent].state if parent in self.jobs else None
            edges[parent] = end_on_retry(job.dependency_kind, state)
        return is_verdict_due(job, edges)

    def wait_for_children(self, job: Job) -> bool:
        """Let a job wait for what it spawned; return whether a verdict may be due."""
        edges = self.edges[job.id]
        edges.update(dict.fromkeys(edges, State.COMPLETED))
        for child in self.children_of(job.id):
            state = self.jobs[child].state
            edges[child] = state if state in TERMINAL else None
            self.children[child].add(job.id)
        return is_verdict_due(job, edges)

    def amend(self, change: Change) -> Swapped:
        """Write what callers may change of a job, if its revision is the expected one."""
        before, after = self.jobs.get(change.before.id), change.after
        if before is None or before.revision != change.before.revision:
            return Swapped(written=False, job=before)
        amended = replace(before, **{name: getattr(after, name) for name in AMENDED})
        self.jobs[before.id] = amended
        counters = Counters()
        counters.amended(before, amended)
        self.count(counters)
        if before.id in self.ready and before.priority != after.priority:
            self.ready[before.id] = (after.priority, self.ready[before.id][1])
        return Swapped(written=True)

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

    def prunable(self, retention: Retention, now: datetime) -> list[str]:
        """Return ended jobs past their retention that no live job depends on, oldest first."""
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

    def count(self, counters: Counters) -> None:
        """Add the counts of one batch."""
        for key, change in counters.tallies.items():
            self.tallies[key] += change
        for reading, (count, top) in counters.readings.items():
            had, highest = self.readings.get(reading, (0, 0.0))
            self.readings[reading] = (had + count, max(highest, top))

    def emit(self, job: Job, what: Transition | Progress) -> None:
        """Append to the event stream."""
        self.newest_event += 1
        moved = what if isinstance(what, Transition) else None
        if moved is not None:
            self.moved[job.id] = self.newest_event
        self.events.append(
            JobEvent(
                cursor=str(self.newest_event),
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
        """Delete a job with its history, logs and edges; its events are trimmed later.

        A key with a window outlives its job.
        """
        job = self.jobs.pop(job_id)
        for place in (self.numbers, self.moved, self.history, self.logs, self.children):
            place.pop(job_id, None)
        for parent in self.edges.pop(job_id, {}):
            if parent in self.children:
                self.children[parent].discard(job_id)
        if job.dedupe is not None and job.dedupe.expires_at is None:
            self.keys.pop((job.dedupe.scope, job.dedupe.key), None)

    def deleted_keys(self, after: int, limit: int, now: datetime) -> KeyPage:
        """Return some of the open keys of deleted jobs, behind so many keys of any job."""
        places = list(self.keys.values())[after : after + limit]
        found = tuple(
            HeldKey(key.scope, key.key, key.digest, key.expires_at, job_id)
            for key, job_id in places
            if key.expires_at is not None and key.expires_at > now and job_id not in self.jobs
        )
        return KeyPage(found, str(after + limit) if len(places) == limit else None)

    def adopt_keys(self, keys: Sequence[HeldKey]) -> None:
        """Write keys of deleted jobs, unless they are taken."""
        for held in keys:
            dedupe = DedupeKey(held.scope, held.key, held.digest, held.expires_at)
            self.keys.setdefault((held.scope, held.key), (dedupe, held.job_id))

    def expire(self, now: datetime) -> None:
        """Delete deduplication keys that have expired, and rates without a debt."""
        over = [
            place
            for place, (key, _) in self.keys.items()
            if key.expires_at is not None and key.expires_at <= now
        ]
        for place in over:
            del self.keys[place]
        for scope in [s for s, (_, until) in self.windows.items() if until <= now]:
            del self.windows[scope]

    def trim(self, events_kept: int, first_minute: int) -> None:
        """Delete old events and measures."""
        del self.events[: max(0, len(self.events) - events_kept)]
        for key in [key for key in self.readings if key[0] < first_minute]:
            del self.readings[key]


class AddPlan:
    """Decides on each job of one ``add`` before any is written."""

    def __init__(self, tables: Tables, now: datetime) -> None:
        self._tables = tables
        self._now = now
        self._aliases: dict[str, str] = {}
        self._keys: dict[tuple[str, str], tuple[DedupeKey, str]] = {}
        self._new: set[str] = set()

    def judge(self, job: Job) -> Added:
        """Return the answer for a job, given those before it in the same call."""
        if job.id in self._tables.jobs or job.id in self._new:
            return Added(AddStatus.ACCEPTED, job.id)
        holder = self._holder(job.dedupe)
        if holder is not None:
            key, existing = holder
            if existing == job.id:  # a repeat of a job that was deleted meanwhile
                return Added(AddStatus.ACCEPTED, job.id)
            deleted = not self._exists(existing)
            if job.dedupe is None or key.digest != job.dedupe.digest:
                return Added(AddStatus.CONFLICT, existing, deleted=deleted)
            self._aliases[job.id] = existing
            return Added(AddStatus.DUPLICATE, existing, deleted=deleted)
        missing = tuple(p for p in self.parents(job) if not self._exists(p))
        if missing:
            return Added(AddStatus.MISSING, job.id, missing=missing)
        self._new.add(job.id)
        if job.dedupe is not None:
            self._keys[job.dedupe.scope, job.dedupe.key] = (job.dedupe, job.id)
        return Added(AddStatus.ACCEPTED, job.id)

    def parents(self, job: Job) -> tuple[str, ...]:
        """Return the dependencies of a job; a duplicate is replaced by the key's holder."""
        return tuple(dict.fromkeys(self._aliases.get(p, p) for p in job.depends_on))

    def is_new(self, job: Job) -> bool:
        """Whether to write this job; True only once when the call contains it twice."""
        is_new = job.id in self._new
        self._new.discard(job.id)
        return is_new

    def _exists(self, job_id: str) -> bool:
        return job_id in self._tables.jobs or job_id in self._new

    def _holder(self, dedupe: DedupeKey | None) -> tuple[DedupeKey, str] | None:
        if dedupe is None:
            return None
        place = (dedupe.scope, dedupe.key)
        held = self._keys.get(place) or self._tables.keys.get(place)
        if held is None:
            return None
        expires = held[0].expires_at
        return held if expires is None or expires > self._now else None


def aborted(answer: Added) -> Added:
    """Return the answer for an acceptable job in a call that was refused."""
    if answer.status is AddStatus.ACCEPTED:
        return replace(answer, status=AddStatus.ABORTED)
    return answer


def matches(stored: Job, change: Change) -> bool:
    """Whether the stored job is still the one that the change was decided on."""
    before, after = change.before, change.after
    if stored.revision != before.revision:
        return False
    held = before.lease and after.lease and before.lease.token
    if held and (stored.lease is None or held != stored.lease.token):
        return False
    return change.until is None or (stored.lease is not None and stored.lease.until == change.until)


def merged(stored: Job, after: Job) -> Job:
    """Return the decided job with the stored fields that only other verbs write."""
    return replace(
        after,
        payload=stored.payload,
        depends_on=stored.depends_on,
        progress=stored.progress,
        checkpoint=stored.checkpoint,
    )


def ends_at(job: Job) -> datetime | None:
    """Return when a live job is overdue: its lifetime's end, or its lease's if sooner."""
    if job.state in TERMINAL:
        return None
    if job.state is State.RUNNING and job.lease and job.lease.until:
        return min(job.lease.until, job.expires_at)
    return job.expires_at


def is_verdict_due(job: Job, edges: Mapping[str, State | None]) -> bool:
    """Whether a verdict on a waiting job may be due."""
    ended = [state for state in edges.values() if state is not None]
    if job.dependency_kind is DependencyKind.AFTER_ANY:
        return bool(ended)
    if len(ended) == len(edges):
        return True
    failed = any(state is not State.COMPLETED for state in ended)
    return failed and job.dependency_kind is not DependencyKind.AFTER_ALL


class RecordTable:
    """The record verbs of the memory store; see ``Store`` for what each promises."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Record] = {}

    async def keep(self, writes: Sequence[RecordWrite]) -> list[int | None]:
        return [self._keep(write) for write in writes]

    def _keep(self, write: RecordWrite) -> int | None:
        place = (write.kind, write.key)
        had = self._records[place].version if place in self._records else 0
        if write.version is not None and write.version != had:
            return None
        if write.data is None:
            self._records.pop(place, None)
            return 0
        self._records[place] = Record(*place, write.data, had + 1)
        return had + 1

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        return [self._records.get((kind, key)) for key in keys]

    async def kinds(self) -> list[str]:
        return sorted({kind for kind, _ in self._records})

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        found = [r for r in self._records.values() if r.kind == kind and r.key.startswith(prefix)]
        found.sort(key=lambda record: record.key, reverse=last)
        if after:
            found = [r for r in found if (r.key < after if last else r.key > after)]
        return found[:limit]
