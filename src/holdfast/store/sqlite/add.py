"""The verbs add and adopt: new jobs with keys, dependencies and history."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from operator import attrgetter

from msgspec.structs import replace

from holdfast.errors import StaleLeaseError
from holdfast.model.job import DependencyKind, Event, Job, State
from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.counters import Counters
from holdfast.store.sqlite.connection import repeated, statement
from holdfast.store.sqlite.decode import by_key
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
from holdfast.store.sqlite.links import link, link_spawned, seq_of
from holdfast.store.sqlite.swap import WAKING, lift_at
from holdfast.store.sqlite.transaction import MINUTE, Transaction
from holdfast.store.values import Added, AddStatus, Fence, JobExport


def add(tx: Transaction, jobs: Sequence[Job], *, atomic: bool, fence: Fence | None) -> list[Added]:
    """Write new jobs; see ``Store.add``."""
    if fence is not None and not _is_held(tx, fence):
        raise StaleLeaseError(fence.job_id)
    if add_single(tx, jobs[0]) if len(jobs) == 1 else add_alike(tx, jobs):
        return [Added(AddStatus.ACCEPTED, job.id) for job in jobs]
    if not any(job.dedupe or job.depends_on for job in jobs):
        answers = _add_plain(tx, jobs)
        if answers is not None:
            return answers
    return _add_checked(tx, jobs, atomic=atomic)


def _is_held(tx: Transaction, fence: Fence) -> bool:
    row = tx.execute(statement("held_by"), (key_of(fence.job_id), fence.token)).fetchone()
    return row is not None


def _add_plain(tx: Transaction, jobs: Sequence[Job]) -> list[Added] | None:
    """Write jobs without keys and dependencies; None if the index on ids finds a repeat."""
    number = tx.number
    tx.execute("SAVEPOINT plain")
    try:
        seqs = insert(tx, [(job, job.depends_on) for job in jobs])
        tx.counters.added(jobs)
        _link_spawned(tx, jobs, seqs)
    except sqlite3.IntegrityError:
        tx.execute("ROLLBACK TO plain")
        tx.number, tx.counters = number, Counters()
        return None
    finally:
        if tx.connection.in_transaction:
            tx.execute("RELEASE plain")
    return [Added(AddStatus.ACCEPTED, job.id) for job in jobs]


def _link_spawned(tx: Transaction, jobs: Sequence[Job], seqs: Sequence[int]) -> None:
    """Let each FAN_IN that waits for a spawner wait for its new children, too."""
    families: defaultdict[str, list[int]] = defaultdict(list)
    for job, seq in zip(jobs, seqs, strict=True):
        if job.spawned_by:
            families[job.spawned_by].append(seq)
    for spawner, children in families.items():
        link_spawned(tx, spawner, children)


def _add_checked(tx: Transaction, jobs: Sequence[Job], *, atomic: bool) -> list[Added]:
    plan = _SQLiteAddPlan(tx)
    answers = [plan.judge(job) for job in jobs]
    if atomic and any(a.status in (AddStatus.CONFLICT, AddStatus.MISSING) for a in answers):
        return [_aborted(answer) for answer in answers]
    places = [place for place, job in enumerate(jobs) if plan.is_new(job)]
    new = [(jobs[place], plan.parents(jobs[place])) for place in places]
    seqs = insert(tx, new)
    tx.counters.added(job for job, _ in new)
    for place, (job, depends_on), seq in zip(places, new, seqs, strict=True):
        if link(tx, job, depends_on, seq):
            answers[place] = replace(answers[place], has_dependents=True)
    return answers


class _SQLiteAddPlan:
    """Decides on each job of one ``add`` before any is written."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._aliases: dict[str, str] = {}
        self._keys: dict[tuple[str, str], tuple[str, str]] = {}
        self._new: set[str] = set()

    def judge(self, job: Job) -> Added:
        """Return the answer for a job, given those before it in the same call."""
        if self._exists(job.id):
            return Added(AddStatus.ACCEPTED, job.id)
        holder = self._holder(job)
        if holder is not None:
            existing, same = holder
            if existing == job.id:  # a repeat of a job that was deleted meanwhile
                return Added(AddStatus.ACCEPTED, job.id)
            deleted = not self._exists(existing)
            if not same:
                return Added(AddStatus.CONFLICT, existing, deleted=deleted)
            self._aliases[job.id] = existing
            return Added(AddStatus.DUPLICATE, existing, deleted=deleted)
        missing = tuple(p for p in self.parents(job) if not self._exists(p))
        if missing:
            return Added(AddStatus.MISSING, job.id, missing=missing)
        self._new.add(job.id)
        if job.dedupe is not None:
            self._keys[job.dedupe.scope, job.dedupe.key] = (job.id, job.dedupe.digest)
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
        return job_id in self._new or seq_of(self._tx, job_id) is not None

    def _holder(self, job: Job) -> tuple[str, bool] | None:
        """Return the job that holds the key, and whether its payload is the same."""
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
    """Write jobs with their trails and the names of their dependencies, but no edges.

    With ``past`` they may have any history; else they were accepted just now.
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


STEPS = 2
"""Journal rows of each job that is added: its submission and its enqueueing."""

_SHARED = attrgetter(
    *("queue", "type", "lease_ttl", "lifetime", "priority", "revision", "max_attempts"),
    *("encoding", "profile", "timeout", "backoff", "retry_timeouts", "retry_crashes"),
    "callback_url",
)


class _Kind:
    """Jobs of one call that differ only in id, time and payload."""

    def __init__(self, job: Job) -> None:
        self.queue, self.name = job.queue, (job.queue, job.type, job.priority)
        self.row = _row_of_kind(job)
        self.options = options_blob(job)
        self.jobs: list[object] = []
        self.bodies: list[object] = []
        self.minutes: Counter[int] = Counter()


def add_alike(tx: Transaction, jobs: Sequence[Job]) -> bool:
    """Write new jobs of the common kind with few statements.

    Return False, with nothing written, when one of them is not plain or not new. That needs
    no savepoint, which would copy every page touched, neither ours nor one of SQLite itself,
    because the statements skip conflicting rows.
    """
    if not jobs or not all(map(_is_plain, jobs)) or not _have_alike_trails(jobs) or tx.ageing:
        return False
    first, number = tx.number + 1, tx.number + STEPS * len(jobs)
    instants = [micros(job.created_at) for job in jobs]
    kinds = _kinds(jobs, first, instants)
    if sum(tx.insert_alike("add_alike_job", kind.row, kind.jobs) for kind in kinds) < len(jobs):
        tx.execute(statement("undo_add_alike"), (first, number))
        return False
    for kind in kinds:
        tx.insert_alike("add_alike_body", (kind.options,), kind.bodies)
        tx.counters.added_alike(kind.name, State.SCHEDULED, kind.minutes)
        tx.woken.add(kind.queue)
    submitted, enqueued = jobs[0].trail
    reasons = (submitted.reason, enqueued.reason)
    tx.execute(statement("journal_added"), (first, number, *reasons))
    if min(instants) // MINUTE == max(instants) // MINUTE:
        tx.journalled(instants[0], first, number)
    else:
        for place, instant in enumerate(instants):
            tx.journalled(instant, first + STEPS * place, first + STEPS * place + 1)
    tx.number = number
    return True


def add_single(tx: Transaction, job: Job) -> bool:
    """Write a new job of the common kind: what ``add_alike`` does, in half the time for one."""
    if not _is_plain(job) or not _have_alike_trails((job,)) or tx.ageing:
        return False
    seq, instant, submitted, enqueued = tx.number + 1, micros(job.created_at), *job.trail
    new = (*_row_of_kind(job), seq, key_blob(job.id), instant)
    if not tx.execute(statement("add_alike_job"), new).rowcount:
        return False
    tx.execute(statement("add_alike_body"), (options_blob(job), seq, bytearray(job.payload)))
    journal = (
        *journal_row(seq, seq, NEVER, submitted),
        *journal_row(seq + 1, seq, seq, enqueued),
    )
    tx.execute(repeated("journal", STEPS), journal)
    kind = (job.queue, job.type, job.priority)
    tx.counters.added_alike(kind, State.SCHEDULED, {instant // MINUTE: 1})
    tx.woken.add(job.queue)
    tx.journalled(instant, seq, seq + 1)
    tx.number = seq + 1
    return True


def _row_of_kind(job: Job) -> Row:
    """Return the parameters of add_alike_job.sql that many jobs share."""
    spans = micros_of_span(job.lease_ttl), micros_of_span(job.lifetime)
    return (job.queue, job.type, *spans, int(job.priority), job.revision, job.max_attempts)


def _kinds(jobs: Sequence[Job], seq: int, instants: Sequence[int]) -> Collection[_Kind]:
    found: dict[tuple[object, ...], _Kind] = {}
    before: tuple[object, ...] = ()
    for job, instant in zip(jobs, instants, strict=True):
        shared = _SHARED(job)
        if shared != before:  # mostly equal, and comparing is cheaper than a lookup
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
    """Whether add_alike_job.sql and add_alike_body.sql write all fields of a job."""
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
            or job.extra
            or job.checkpoint is not None
        )
    )


def _have_alike_trails(jobs: Sequence[Job]) -> bool:
    """Whether every trail is what journal_added.sql writes, with the same reasons."""
    reasons = tuple(edge.reason for edge in jobs[0].trail)
    known = None
    for job in jobs:
        trail, at = job.trail, job.created_at
        if trail is known and trail[0].at is at:
            continue
        if len(trail) != STEPS or (trail[0].reason, trail[1].reason) != reasons:
            return False
        submitted, enqueued = trail
        if submitted.event is not Event.SUBMIT or enqueued.event is not Event.ENQUEUE:
            return False
        if submitted.at is not at or enqueued.at is not at:
            return False
        known = trail
    return True


def adopt(tx: Transaction, exports: Sequence[JobExport]) -> list[bool]:
    """Write jobs as they are; see ``Store.adopt``."""
    new: dict[str, JobExport] = {}
    answers = []
    keys = [key_of(export.job.id) for export in exports]
    known = {id_of(key) for key, _ in by_key(tx.connection, "seqs_of", keys)}
    for export in exports:
        job_id = export.job.id
        answers.append(job_id not in new and job_id not in known)
        if answers[-1]:
            new[job_id] = export
    past = [replace(export.job, trail=export.history) for export in new.values()]
    seqs = insert(tx, [(job, job.depends_on) for job in past], past=True)
    for job, seq in zip(past, seqs, strict=True):
        tx.counters.moved(None, job)
        link(tx, job, tuple(p for p in job.depends_on if _is_before(tx, p, seq)), seq)
    exported = zip(new.values(), seqs, strict=True)
    lines = [log_row(seq, line) for e, seq in exported for line in e.logs[-MAX_LOG_LINES:]]
    tx.many("add_log", lines)
    return answers


def _is_before(tx: Transaction, job_id: str, seq: int) -> bool:
    """Whether a job was there before the one with this ``seq``."""
    found = seq_of(tx, job_id)
    return found is not None and found < seq
