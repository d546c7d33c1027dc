"""What a running job may say under its lease: that it lives, how far it is, what it logs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.sqlite.decoding import cancel_of
from holdfast.store.sqlite.encoding import encoded, log_row, progress_row
from holdfast.store.sqlite.sql import statement
from holdfast.store.sqlite.values import key_of, moment
from holdfast.store.sqlite.writer import Transaction
from holdfast.store.values import Beat, Fence, Note


def extend(tx: Transaction, fences: Sequence[Fence]) -> list[Beat]:
    """Renew leases; see ``Store.extend``."""
    return [_extend(tx, fence) for fence in fences]


def _extend(tx: Transaction, fence: Fence) -> Beat:
    place = (key_of(fence.job_id), fence.token, tx.instant)
    row = tx.execute(statement("extend"), place).fetchone()
    if row is None:
        return Beat(held=False)
    until, cancel = row
    return Beat(held=True, until=moment(until), cancel=cancel_of(cancel))


def note(tx: Transaction, notes: Sequence[Note]) -> list[bool]:
    """Keep what running jobs say; see ``Store.note``."""
    return [_note(tx, each) for each in notes]


def _note(tx: Transaction, said: Note) -> bool:
    fence = said.fence
    row = tx.execute(statement("held_by"), (key_of(fence.job_id), fence.token)).fetchone()
    if row is None:
        return False
    (seq,) = row
    if said.progress is not None:
        tx.number += 1
        tx.execute(statement("progress"), (seq, encoded(said.progress)))
        tx.journal([progress_row(tx.number, seq, said.progress)])
    if said.checkpoint is not None:
        tx.execute(statement("checkpoint"), (seq, said.checkpoint))
    if said.log is not None:
        tx.execute(statement("add_log"), log_row(seq, said.log))
        tx.execute(statement("trim_log"), (seq, MAX_LOG_LINES))
    return True
