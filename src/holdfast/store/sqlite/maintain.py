"""The verbs for maintenance: promote, overdue, dependents, prune, delete and lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.model.job import Job, State
from holdfast.model.measures import minute_of
from holdfast.model.policy import Retention
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.decode import STATES, read_jobs
from holdfast.store.sqlite.encode import NEVER, NOTHING, Row, id_of, key_of, micros_of_span, moment
from holdfast.store.sqlite.transaction import Transaction
from holdfast.store.values import Dependent, Promoted

MEASURES_KEPT = timedelta(days=7)


def promote(tx: Transaction, limit: int) -> Promoted:
    """Make due jobs ready; see ``Store.promote``."""
    rows = tx.execute(statement("due"), (tx.instant, limit)).fetchall()
    moves: list[Row] = []
    journal: list[Row] = []
    for seq, moved, state, queue, type_, priority, attempt, version, worker in rows:
        tx.number += 1
        interval = tx.ageing.get(queue)
        lift_at = NEVER if interval is None else tx.instant + interval
        moves.append((seq, tx.number, tx.instant, lift_at))
        journal.append(
            (
                tx.number,
                seq,
                moved,
                "due",
                state,
                "SCHEDULED",
                tx.instant,
                "time reached",
                attempt,
                version or 0,
                worker,
                NOTHING,
            )
        )
        tx.counters.tallies[queue, type_, priority, STATES[state]] -= 1
        tx.counters.tallies[queue, type_, priority, State.SCHEDULED] += 1
        tx.woken.add(queue)
    tx.many("promote", moves)
    tx.journal(journal)
    _age(tx)
    (later,) = tx.execute(statement("next_due")).fetchone()
    return Promoted(len(rows), None if later is None else moment(later))


def _age(tx: Transaction) -> None:
    for queue, interval in tx.ageing.items():
        tx.execute(statement("age"), (queue, tx.instant, interval))


def overdue(connection: sqlite3.Connection, instant: int, limit: int) -> list[Job]:
    """Return overdue jobs; see ``Store.overdue``."""
    leases = connection.execute(statement("overdue_leases"), (instant, limit)).fetchall()
    lifetimes = connection.execute(statement("overdue_lifetimes"), (instant, limit)).fetchall()
    passed = sorted({*leases, *lifetimes})
    return read_jobs(connection, [seq for _, seq in passed[:limit]])


def dependents(connection: sqlite3.Connection, limit: int) -> list[Dependent]:
    """Return jobs on which a verdict may be due; see ``Store.dependents``."""
    seqs = [seq for (seq,) in connection.execute(statement("verdict_due"), (limit,))]
    parents: dict[int, list[tuple[str, State]]] = {seq: [] for seq in seqs}
    found = connection.execute(statement("parents"), (msgspec.json.encode(seqs).decode(),))
    for _, child, key, state in sorted(found):
        parents[child].append((id_of(key), STATES[state]))
    jobs = read_jobs(connection, seqs)
    return [Dependent(job, tuple(parents[seq])) for seq, job in zip(seqs, jobs, strict=True)]


def prune(tx: Transaction, retention: Retention, limit: int) -> int:
    """Delete old jobs; see ``Store.prune``."""
    kept = (
        (State.COMPLETED, retention.completed),
        (State.FAILED, retention.failed),
        (State.DEAD_LETTER, retention.dead_letter),
        (State.CANCELLED, retention.cancelled),
    )
    old: list[tuple[int, int]] = []
    for state, span in kept:
        if span is not None:
            before = tx.instant - micros_of_span(span)
            old.extend(tx.execute(statement("prunable"), (state._value_, before, limit)))
    seqs = [seq for _, seq in sorted(old)[:limit]]
    _remove(tx, seqs)
    tx.execute(statement("expire_keys"), (tx.instant,))
    tx.execute(statement("expire_locks"), (tx.instant,))
    tx.execute(statement("expire_windows"), (tx.instant,))
    tx.execute(statement("expire_measures"), (minute_of(tx.now - MEASURES_KEPT),))
    tx.execute(statement("delete_marks"))
    _trim_events(tx)
    return len(seqs)


def delete(tx: Transaction, ids: Sequence[str]) -> list[bool]:
    """Delete ended jobs; see ``Store.delete``."""
    answers = []
    for job_id in ids:
        row = tx.execute(statement("deletable"), (key_of(job_id),)).fetchone()
        _remove(tx, [] if row is None else [row[0]])
        answers.append(row is not None)
    return answers


def _remove(tx: Transaction, seqs: Sequence[int]) -> None:
    """Delete jobs; their events are trimmed later."""
    window = max(0, tx.number - tx.events_kept)
    chains: list[Row] = []
    keys: list[Row] = []
    for seq in seqs:
        row = tx.execute(statement("delete_job"), (seq,)).fetchone()
        key, queue, type_, priority, state, moved = row
        tx.counters.tallies[queue, type_, priority, STATES[state]] -= 1
        chains.append((moved, window))
        keys.append((seq, key))
        if moved > window:
            tx.execute(statement("add_gone"), (seq, key, queue, type_, moved))
    rows = [(seq,) for seq in seqs]
    for name in ("tags", "body", "checkpoint", "edges", "keys", "logs"):
        tx.many(f"delete_{name}", rows)
    tx.many("keep_keys", keys)
    tx.many("delete_journal", chains)


def _trim_events(tx: Transaction) -> None:
    """Delete old events that are no history: of progress, and of deleted jobs."""
    window = max(0, tx.number - tx.events_kept)
    tx.execute(statement("trim_progress"), (window,))
    stale = tx.execute(statement("stale_gone"), (window,)).fetchall()
    tx.many("delete_journal", [(moved, window) for _, moved in stale])
    tx.many("delete_gone", [(seq,) for seq, _ in stale])


def lock(tx: Transaction, name: str, holder: str, ttl: timedelta, data: bytes) -> bool:
    """Lock a name; see ``Store.lock``."""
    span = micros_of_span(ttl)
    if tx.execute(statement("locked_by_other"), (name, holder, tx.instant, span)).fetchone():
        return False
    tx.execute(statement("lock"), (name, holder, tx.instant + span, data))
    return True
