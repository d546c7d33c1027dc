"""Writing jobs that were enqueued at their birth: what those of a kind share is bound once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from operator import attrgetter

from holdfast.model.job import DependencyKind, Event, Job, State
from holdfast.store.sqlite.encoding import key_blob, options_blob
from holdfast.store.sqlite.sql import statement
from holdfast.store.sqlite.values import Row, micros, micros_of_span
from holdfast.store.sqlite.writer import MINUTE, Transaction

STEPS = 2
"""Numbers of the journal that each of them takes: for its birth and its way into the queue."""

_SHARED = attrgetter(
    *("queue", "type", "lease_ttl", "lifetime", "priority", "revision", "max_attempts"),
    *("encoding", "profile", "timeout", "backoff", "retry_timeouts", "callback_url"),
)


class _Kind:
    """Jobs that differ in their id, time and payload only."""

    def __init__(self, job: Job) -> None:
        self.queue, self.name = job.queue, (job.queue, job.type, job.priority)
        spans = micros_of_span(job.lease_ttl), micros_of_span(job.lifetime)
        counts = int(job.priority), job.revision, job.max_attempts
        self.row: Row = (job.queue, job.type, *spans, *counts)
        self.options = options_blob(job)
        self.jobs: list[object] = []
        self.bodies: list[object] = []
        self.minutes: Counter[int] = Counter()


def bear(tx: Transaction, jobs: Sequence[Job]) -> bool:
    """Write new jobs; False when there is more to one of them than to most, or one is not new.

    Then nothing is written. No savepoint is needed for that, which would copy every page that
    is touched, nor one by SQLite itself, thanks to what the statements do on a conflict.
    """
    if not jobs or not all(map(_is_plain, jobs)) or not _are_told_alike(jobs) or tx.ageing:
        return False
    first, number = tx.number + 1, tx.number + STEPS * len(jobs)
    instants = [micros(job.created_at) for job in jobs]
    kinds = _kinds(jobs, first, instants)
    if sum(tx.insert_alike("bear_job", kind.row, kind.jobs) for kind in kinds) < len(jobs):
        tx.execute(statement("unbear"), (first, number))
        return False
    for kind in kinds:
        tx.insert_alike("bear_body", (kind.options,), kind.bodies)
        tx.ledger.born(kind.name, State.SCHEDULED, kind.minutes)
        tx.woken.add(kind.queue)
    birth, way = jobs[0].trail
    tx.execute(statement("journal_births"), (first, number, birth.reason, way.reason))
    if min(instants) // MINUTE == max(instants) // MINUTE:
        tx.journalled(instants[0], first, number)
    else:
        for place, instant in enumerate(instants):
            tx.journalled(instant, first + STEPS * place, first + STEPS * place + 1)
    tx.number = number
    return True


def _kinds(jobs: Sequence[Job], seq: int, instants: Sequence[int]) -> Collection[_Kind]:
    found: dict[tuple[object, ...], _Kind] = {}
    before: tuple[object, ...] = ()
    for job, instant in zip(jobs, instants, strict=True):
        shared = _SHARED(job)
        if shared != before:  # mostly it is the same, and to compare is cheaper than to look up
            before = shared
            if shared not in found:
                found[shared] = _Kind(job)
            kind = found[shared]
        kind.jobs += (seq, key_blob(job.id), instant)
        kind.bodies += (seq, bytearray(job.payload))
        kind.minutes[instant // MINUTE] += 1
        seq += STEPS
    return found.values()


def _is_plain(job: Job) -> bool:
    """Whether a job has nothing but what bear_job.sql and bear_body.sql write."""
    at = job.created_at
    return (
        job.state is State.SCHEDULED
        and job.scheduled_at is at
        and job.updated_at is at
        and job.expires_at == at + job.lifetime
        and job.generation == 1
        and job.dependency_kind is DependencyKind.AFTER
        and not (
            job.tags
            or job.dedupe
            or job.depends_on
            or job.spawned_by
            or job.correlation_id
            or job.limit_key
            or job.held
            or job.attempt
            or job.depth
            or job.due_at
            or job.checkpoint is not None
        )
    )


def _are_told_alike(jobs: Sequence[Job]) -> bool:
    """Whether every trail is what journal_births.sql writes, for the same reasons."""
    reasons = tuple(edge.reason for edge in jobs[0].trail)
    known = None
    for job in jobs:
        trail, at = job.trail, job.created_at
        if trail is known and trail[0].at is at:
            continue
        if len(trail) != STEPS or (trail[0].reason, trail[1].reason) != reasons:
            return False
        birth, way = trail
        if birth.event is not Event.SUBMIT or way.event is not Event.ENQUEUE:
            return False
        if birth.at is not at or way.at is not at:
            return False
        known = trail
    return True
