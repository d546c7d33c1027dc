"""Writing new jobs: keys, dependencies, history and all."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter

from msgspec.structs import replace

from holdfast.errors import StaleLeaseError
from holdfast.model.job import DependencyKind, Event, Job, State
from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.counters import Counters
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.encode import (
    NEVER,
    Row,
    body_row,
    id_of,
    job_row,
    journal_row,
    key_blob,
    key_of,
    log_row,
    micros,
    micros_of_span,
    options_blob,
    past_row,
)
from holdfast.store.sqlite.swap import WAKING, lift_at
from holdfast.store.sqlite.writer import MINUTE, Transaction
from holdfast.store.values import Added, AddStatus, Fence, JobExport


def add(tx: Transaction, jobs: Sequence[Job], *, atomic: bool, fence: Fence | None) -> list[Added]:
    """Write new jobs; see ``Store.add``."""
    if fence is not None and not _holds(tx, fence):
        raise StaleLeaseError(fence.job_id)
    if bear(tx, jobs):
        return [Added(AddStatus.ACCEPTED, job.id) for job in jobs]
    if not any(job.dedupe or job.depends_on or job.spawned_by for job in jobs):
        answers = _add_plain(tx, jobs)
        if answers is not None:
            return answers
    return _add_judged(tx, jobs, atomic=atomic)


def _holds(tx: Transaction, fence: Fence) -> bool:
    row = tx.execute(statement("held_by"), (key_of(fence.job_id), fence.token)).fetchone()
    return row is not None


def _add_plain(tx: Transaction, jobs: Sequence[Job]) -> list[Added] | None:
    """Write jobs that wait for nothing, hoping all are new: the index on ids tells if not."""
    number = tx.number
    tx.execute("SAVEPOINT plain")
    try:
        insert(tx, [(job, job.depends_on) for job in jobs])
        tx.ledger.added(jobs)
    except sqlite3.IntegrityError:
        tx.execute("ROLLBACK TO plain")
        tx.number, tx.ledger = number, Counters()
        return None
    finally:
        if tx.connection.in_transaction:
            tx.execute("RELEASE plain")
    return [Added(AddStatus.ACCEPTED, job.id) for job in jobs]


def _add_judged(tx: Transaction, jobs: Sequence[Job], *, atomic: bool) -> list[Added]:
    plan = _SQLiteAdd(tx)
    answers = [plan.judge(job) for job in jobs]
    if atomic and any(a.status in (AddStatus.CONFLICT, AddStatus.MISSING) for a in answers):
        return [_aborted(answer) for answer in answers]
    places = [place for place, job in enumerate(jobs) if plan.is_new(job)]
    new = [(jobs[place], plan.alias(jobs[place])) for place in places]
    seqs = insert(tx, new)
    tx.ledger.added(job for job, _ in new)
    for place, (job, depends_on), seq in zip(places, new, seqs, strict=True):
        if link(tx, job, depends_on, seq):
            answers[place] = replace(answers[place], has_dependents=True)
    return answers


class _SQLiteAdd:
    """Judges the jobs of one call before any is written."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._aliases: dict[str, str] = {}
        self._keys: dict[tuple[str, str], tuple[str, str]] = {}
        self._new: set[str] = set()

    def judge(self, job: Job) -> Added:
        if self._exists(job.id):
            return Added(AddStatus.ACCEPTED, job.id)
        holder = self._holder(job)
        if holder is not None:
            existing, same = holder
            if not same:
                return Added(AddStatus.CONFLICT, existing)
            self._aliases[job.id] = existing
            return Added(AddStatus.DUPLICATE, existing)
        missing = tuple(p for p in self.alias(job) if not self._exists(p))
        if missing:
            return Added(AddStatus.MISSING, job.id, missing=missing)
        self._new.add(job.id)
        if job.dedupe is not None:
            self._keys[job.dedupe.scope, job.dedupe.key] = (job.id, job.dedupe.digest)
        return Added(AddStatus.ACCEPTED, job.id)

    def alias(self, job: Job) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._aliases.get(p, p) for p in job.depends_on))

    def is_new(self, job: Job) -> bool:
        fresh = job.id in self._new
        self._new.discard(job.id)
        return fresh

    def _exists(self, job_id: str) -> bool:
        return job_id in self._new or seq_of(self._tx, job_id) is not None

    def _holder(self, job: Job) -> tuple[str, bool] | None:
        """Return the job that holds the key, and whether it was given the same payload."""
        dedupe = job.dedupe
        if dedupe is None:
            return None
        held = self._keys.get((dedupe.scope, dedupe.key))
        if held is None:
            place = (dedupe.scope, dedupe.key, self._tx.instant)
            row = self._tx.execute(statement("key_holder"), place).fetchone()
            if row is None:
                return None
            held = (id_of(row[0]), row[1])
        return held[0], held[1] == dedupe.digest


def _aborted(answer: Added) -> Added:
    if answer.status is AddStatus.ACCEPTED:
        return replace(answer, status=AddStatus.ABORTED)
    return answer


def insert(
    tx: Transaction, new: Sequence[tuple[Job, tuple[str, ...]]], *, past: bool = False
) -> list[int]:
    """Write jobs with what their trails say and the dependencies they name; not the edges.

    With ``past`` they may have been through anything; else they were accepted just now.
    """
    row = past_row if past else job_row
    seqs: list[int] = []
    jobs: list[Row] = []
    bodies: list[Row] = []
    tags: list[Row] = []
    journal: list[Row] = []
    keys: list[Row] = []
    checkpoints: list[Row] = []
    number = tx.number
    for job, depends_on in new:
        seq = number + 1
        seqs.append(seq)
        moved = NEVER
        for edge in job.trail:
            number += 1
            journal.append(journal_row(number, seq, moved, edge))
            moved = number
        number = max(number, seq)
        has_dependents = job.state is State.PENDING and not depends_on
        jobs.append(row(job, seq, number, has_dependents=has_dependents, lift_at=lift_at(tx, job)))
        bodies.append(body_row(job, seq, depends_on))
        if job.tags:
            tags.extend((name, value, seq) for name, value in job.tags.items())
        if job.dedupe is not None:
            expires = job.dedupe.expires_at
            until = None if expires is None else micros(expires)
            keys.append((job.dedupe.scope, job.dedupe.key, job.dedupe.digest, until, seq))
        if job.checkpoint is not None:
            checkpoints.append((seq, job.checkpoint))
        if not job.trail or job.trail[0].at is not job.created_at:
            tx.mark(micros(job.created_at), seq)
        if job.state in WAKING:
            tx.woken.add(job.queue)
    tx.insert("adopt_job" if past else "add_job", jobs)
    tx.insert("add_body", bodies)
    tx.insert("add_tag", tags)
    tx.many("add_key", keys)
    tx.many("checkpoint", checkpoints)
    tx.journal(journal)
    tx.number = number
    return seqs


def link(tx: Transaction, job: Job, depends_on: tuple[str, ...], seq: int) -> bool:
    """Write who waits for whom; return whether something had already ended."""
    if job.spawned_by:
        _link_spawned(tx, job.spawned_by, seq)
    for parent_id in depends_on:
        tx.execute(statement("link"), (seq, seq_of(tx, parent_id)))
        if job.dependency_kind is DependencyKind.FAN_IN:
            for spawned in _spawned(tx, parent_id, seq):
                tx.execute(statement("link"), (seq, spawned))
    if not depends_on:
        return False
    tx.execute(statement("ripen"), (seq,))
    return bool(tx.execute(statement("any_ended"), (seq,)).fetchone()[0])


def _link_spawned(tx: Transaction, spawner: str, seq: int) -> None:
    waiting = tx.execute(statement("waiting_fan_in"), (key_of(spawner),)).fetchall()
    for (child,) in waiting:
        tx.execute(statement("link"), (child, seq))
        tx.execute(statement("ripen"), (child,))


def _spawned(tx: Transaction, job_id: str, before: int) -> Iterator[int]:
    """Everything a job spawned, and what that spawned, in order of submission."""
    rows = tx.execute(statement("spawned"), (key_of(job_id), before)).fetchall()
    for seq, key in rows:
        yield seq
        yield from _spawned(tx, id_of(key), before)


def seq_of(tx: Transaction, job_id: str) -> int | None:
    """Return the number of a job, if it is there."""
    row = tx.execute(statement("seq_of"), (key_of(job_id),)).fetchone()
    return None if row is None else int(row[0])


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
        tx.ledger.added_alike(kind.name, State.SCHEDULED, kind.minutes)
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


def adopt(tx: Transaction, dossiers: Sequence[JobExport]) -> list[bool]:
    """Write jobs as they are; see ``Store.adopt``."""
    return [_adopt(tx, dossier) for dossier in dossiers]


def _adopt(tx: Transaction, dossier: JobExport) -> bool:
    job = dossier.job
    if seq_of(tx, job.id) is not None:
        return False
    lived = replace(job, trail=dossier.history)
    (seq,) = insert(tx, [(lived, job.depends_on)], past=True)
    tx.ledger.moved(None, lived)
    there = tuple(parent for parent in job.depends_on if seq_of(tx, parent) is not None)
    link(tx, job, there, seq)
    tx.many("add_log", [log_row(seq, line) for line in dossier.logs[-MAX_LOG_LINES:]])
    return True
