"""The links from dependents to the jobs they wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.model.job import DependencyKind, Job
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.encode import id_of, key_of
from holdfast.store.sqlite.transaction import Transaction


def link(tx: Transaction, job: Job, depends_on: tuple[str, ...], seq: int) -> bool:
    """Link a job to its dependencies; return whether one had already ended."""
    if job.spawned_by:
        link_spawned(tx, job.spawned_by, [seq])
    for parent_id in depends_on:
        tx.execute(statement("link"), (seq, seq_of(tx, parent_id)))
        _link_family(tx, job, parent_id, seq, before=seq)
    if not depends_on:
        return False
    tx.execute(statement("update_verdict_due"), (seq,))
    return bool(tx.execute(statement("any_ended"), (seq,)).fetchone()[0])


def link_spawned(tx: Transaction, spawner: str, seqs: Sequence[int]) -> None:
    """Link each FAN_IN that waits for a job to what the job has spawned."""
    waiting = tx.execute(statement("waiting_fan_in"), (key_of(spawner),)).fetchall()
    for (child,) in waiting:
        tx.many("link", [(child, seq) for seq in seqs])
        tx.execute(statement("update_verdict_due"), (child,))


def wait_again(tx: Transaction, job: Job, seq: int) -> bool:
    """Open the dependencies of a retried job again; return whether a verdict may be due."""
    for parent_id in job.depends_on:
        if seq_of(tx, parent_id) is not None:
            _link_family(tx, job, parent_id, seq, before=tx.number + 1)
    tx.execute(statement("wait_again"), (seq,))
    tx.execute(statement("update_verdict_due"), (seq,))
    return bool(tx.execute(statement("is_verdict_due"), (seq,)).fetchone()[0])


def wait_for_children(tx: Transaction, job: Job, seq: int) -> bool:
    """Let a job wait for what it spawned; return whether a verdict may be due."""
    tx.execute(statement("set_kind"), (seq, job.dependency_kind._value_))
    tx.execute(statement("close_edges"), (seq,))
    tx.execute(statement("link_children"), (seq, key_of(job.id)))
    tx.execute(statement("update_verdict_due"), (seq,))
    return bool(tx.execute(statement("is_verdict_due"), (seq,)).fetchone()[0])


def _link_family(tx: Transaction, job: Job, parent: str, seq: int, *, before: int) -> None:
    """Link a FAN_IN to all that a dependency has spawned."""
    if job.dependency_kind is DependencyKind.FAN_IN:
        for spawned in _spawned(tx, parent, before):
            tx.execute(statement("link"), (seq, spawned))


def _spawned(tx: Transaction, job_id: str, before: int) -> Iterator[int]:
    """Yield all jobs that a job spawned, transitively, in order of submission."""
    rows = tx.execute(statement("spawned"), (key_of(job_id), before)).fetchall()
    for seq, key in rows:
        yield seq
        yield from _spawned(tx, id_of(key), before)


def seq_of(tx: Transaction, job_id: str) -> int | None:
    """Return the ``seq`` of a job; None if it does not exist."""
    row = tx.execute(statement("seq_of"), (key_of(job_id),)).fetchone()
    return None if row is None else int(row[0])
