"""The verbs for small records beside the jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.store.cursors import BEYOND
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.transaction import Transaction
from holdfast.store.values import Record, RecordWrite


def keep(tx: Transaction, writes: Sequence[RecordWrite]) -> list[int | None]:
    """Write or delete records; see ``Store.keep``."""
    return [_keep(tx, write) for write in writes]


def _keep(tx: Transaction, write: RecordWrite) -> int | None:
    place = (write.kind, write.key)
    row = tx.execute(statement("record"), place).fetchone()
    had: int = row[3] if row else 0
    if write.version is not None and write.version != had:
        return None
    if write.data is None:
        tx.execute(statement("delete_record"), place)
        return 0
    tx.execute(statement("write_record"), (*place, write.data, had + 1))
    return had + 1


def records(connection: sqlite3.Connection, kind: str, keys: Sequence[str]) -> list[Record | None]:
    """Return records by key; see ``Store.records``."""
    rows = [connection.execute(statement("record"), (kind, key)).fetchone() for key in keys]
    return [Record(*row) if row else None for row in rows]


def kinds(connection: sqlite3.Connection) -> list[str]:
    """Return the kinds that have records; see ``Store.kinds``."""
    return sorted(kind for (kind,) in connection.execute(statement("kinds")))


def browse(
    connection: sqlite3.Connection, kind: str, prefix: str, after: str, limit: int, *, last: bool
) -> list[Record]:
    """List records; see ``Store.browse``."""
    name = "browse_records_back" if last else "browse_records"
    begin = after or BEYOND if last else max(prefix, after)  # SQLite seeks by one bound only
    rows = connection.execute(statement(name), (kind, prefix, begin, after, limit))
    return [Record(*row) for row in rows]
