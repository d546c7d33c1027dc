"""What the memory store must judge by itself: keys, fences, and who is ripe or overdue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from holdfast.model.job import TERMINAL, DedupeKey, DependencyKind, Job, State
from holdfast.store._shapes import Added, AddStatus, Change
from holdfast.store.memory.tables import Tables


class Plan:
    """Judges the jobs of one ``add`` before any is written."""

    def __init__(self, tables: Tables, now: datetime) -> None:
        self._tables = tables
        self._now = now
        self._aliases: dict[str, str] = {}
        self._keys: dict[tuple[str, str], tuple[DedupeKey, str]] = {}
        self._new: set[str] = set()

    def judge(self, job: Job) -> Added:
        if job.id in self._tables.jobs or job.id in self._new:
            return Added(AddStatus.ACCEPTED, job.id)
        holder = self._holder(job.dedupe)
        if holder is not None:
            key, existing = holder
            if job.dedupe is None or key.digest != job.dedupe.digest:
                return Added(AddStatus.CONFLICT, existing)
            self._aliases[job.id] = existing
            return Added(AddStatus.DUPLICATE, existing)
        missing = tuple(p for p in self.alias(job) if not self._exists(p))
        if missing:
            return Added(AddStatus.MISSING, job.id, missing=missing)
        self._new.add(job.id)
        if job.dedupe is not None:
            self._keys[job.dedupe.scope, job.dedupe.key] = (job.dedupe, job.id)
        return Added(AddStatus.ACCEPTED, job.id)

    def alias(self, job: Job) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._aliases.get(p, p) for p in job.depends_on))

    def is_new(self, job: Job) -> bool:
        """Whether this job is to be written; once only, should it stand in the call twice."""
        fresh = job.id in self._new
        self._new.discard(job.id)
        return fresh

    def _exists(self, job_id: str) -> bool:
        return job_id in self._tables.jobs or job_id in self._new

    def _holder(self, dedupe: DedupeKey | None) -> tuple[DedupeKey, str] | None:
        if dedupe is None:
            return None
        place = (dedupe.scope, dedupe.key)
        held = self._keys.get(place) or self._tables.keys.get(place)
        if held is None or (held[1] not in self._new and held[1] not in self._tables.jobs):
            return None
        expires = held[0].expires_at
        return held if expires is None or expires > self._now else None


def aborted(answer: Added) -> Added:
    """The answer of a job that was fine, in a call that was not."""
    if answer.status is AddStatus.ACCEPTED:
        return replace(answer, status=AddStatus.ABORTED)
    return answer


def matches(stored: Job, change: Change) -> bool:
    """Whether a change was decided on the job as it is stored."""
    before, after = change.before, change.after
    if stored.revision != before.revision:
        return False
    held = before.lease and after.lease and before.lease.token
    if held and (stored.lease is None or held != stored.lease.token):
        return False
    return change.until is None or (stored.lease is not None and stored.lease.until == change.until)


def merged(stored: Job, after: Job) -> Job:
    """The decided job with what only other verbs write."""
    return replace(
        after,
        payload=stored.payload,
        depends_on=stored.depends_on,
        progress=stored.progress,
        checkpoint=stored.checkpoint,
    )


def instant(job: Job) -> datetime | None:
    """When a live job runs out: its lifetime, or its lease if that ends sooner."""
    if job.state in TERMINAL:
        return None
    if job.state is State.RUNNING and job.lease and job.lease.until:
        return min(job.lease.until, job.expires_at)
    return job.expires_at


def is_ripe(job: Job, edges: Mapping[str, State | None]) -> bool:
    """Whether a verdict on a waiting job may be due."""
    ended = [state for state in edges.values() if state is not None]
    if job.dependency_kind is DependencyKind.AFTER_ANY:
        return bool(ended)
    return len(ended) == len(edges) or any(state is not State.COMPLETED for state in ended)
