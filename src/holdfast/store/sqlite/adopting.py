"""Writing jobs that lived elsewhere before."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.sqlite.adding import insert, link, seq_of
from holdfast.store.sqlite.encoding import log_row
from holdfast.store.sqlite.writer import Transaction
from holdfast.store.values import Dossier


def adopt(tx: Transaction, dossiers: Sequence[Dossier]) -> list[bool]:
    """Write jobs as they are; see ``Store.adopt``."""
    return [_adopt(tx, dossier) for dossier in dossiers]


def _adopt(tx: Transaction, dossier: Dossier) -> bool:
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
