"""The verb amend: what callers may change of a stored job."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.decode import by_key, read_jobs
from holdfast.store.sqlite.encode import NEVER, amended_body_row, key_of, micros
from holdfast.store.sqlite.swap import AT_ONCE, WAKING, lift_at
from holdfast.store.sqlite.transaction import Transaction
from holdfast.store.values import Change, Swapped


def amend(tx: Transaction, changes: Sequence[Change]) -> list[Swapped]:
    """Write changes whose job is unchanged; see ``Store.amend``."""
    return [_amend(tx, change) for change in changes]


def _amend(tx: Transaction, change: Change) -> Swapped:
    before, after = change.before, change.after
    rows = list(by_key(tx.connection, "fence", [key_of(before.id)]))
    if not rows:
        return Swapped(written=False)
    ((_, seq, revision, *_),) = rows
    (stored,) = read_jobs(tx.connection, [seq])
    if revision != before.revision:
        return Swapped(written=False, job=stored)
    lift = NEVER if lift_at(tx, stored) is None else AT_ONCE
    due = NEVER if after.due_at is None else micros(after.due_at)
    tx.execute(statement("amend"), (seq, int(after.priority), after.revision, lift, due))
    if stored.tags != after.tags:
        tx.execute(statement("delete_tags"), (seq,))
        tx.insert("add_tag", [(name, value, seq) for name, value in after.tags.items()])
    tx.execute(statement("amend_body"), amended_body_row(after, seq))
    tx.counters.amended(stored, after)
    if stored.state in WAKING:
        tx.woken.add(stored.queue)
    return Swapped(written=True)
