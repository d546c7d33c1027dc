"""Writing new jobs: keys, dependencies, history and all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from holdfast.errors import StaleLeaseError
from holdfast.model.job import DependencyKind, Job, State
from holdfast.store.counters import Ledger
from holdfast.store.sqlite.bearing import bear
from holdfast.store.sqlite.encoding import body_row, job_row, journal_row, past_row
from holdfast.store.sqlite.moving import WAKING, lift_at
from holdfast.store.sqlite.sql import statement
from holdfast.store.sqlite.values import NEVER, Row, id_of, key_of, micros
from holdfast.store.sqlite.writer import Transaction
from holdfast.store.values import Added, AddStatus, Fence


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
        tx.number, tx.ledger = number, Ledger()
        return None
    finally:
        if tx.connection.in_transaction:
            tx.execute("RELEASE plain")
    return [Added(AddStatus.ACCEPTED, job.id) for job in jobs]


def _add_judged(tx: Transaction, jobs: Sequence[Job], *, atomic: bool) -> list[Added]:
    plan = _Plan(tx)
    answers = [plan.judge(job) for job in jobs]
    if atomic and any(a.status in (AddStatus.CONFLICT, AddStatus.MISSING) for a in answers):
        return [_aborted(answer) for answer in answers]
    places = [place for place, job in enumerate(jobs) if plan.is_new(job)]
    new = [(jobs[place], plan.alias(jobs[place])) for place in places]
    seqs = insert(tx, new)
    tx.ledger.added(job for job, _ in new)
    for place, (job, depends_on), seq in zip(places, new, seqs, strict=True):
        if link(tx, job, depends_on, seq):
            answers[place] = replace(answers[place], ripe=True)
    return answers


class _Plan:
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
        ripe = job.state is State.PENDING and not depends_on
        jobs.append(row(job, seq, number, ripe=ripe, lift_at=lift_at(tx, job)))
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
