"""Judging new jobs before any is written: repeats, keys, dependencies."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from ...job import DedupeKey, Job
from .._shapes import Added, AddStatus
from .tables import Tables


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
            same = job.dedupe is not None and key.digest == job.dedupe.digest
            self._aliases[job.id] = existing
            return Added(AddStatus.DUPLICATE if same else AddStatus.CONFLICT, existing)
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
        if held is None or held[1] not in self._new and held[1] not in self._tables.jobs:
            return None
        expires = held[0].expires_at
        return held if expires is None or expires > self._now else None


def aborted(answer: Added) -> Added:
    """The answer of a job that was fine, in a call that was not."""
    if answer.status is AddStatus.ACCEPTED:
        return replace(answer, status=AddStatus.ABORTED)
    return answer
