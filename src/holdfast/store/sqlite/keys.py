"""The verbs deleted_keys and adopt_keys: keys that outlive their jobs, for another store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.encode import id_of, key_of, micros, moment
from holdfast.store.sqlite.transaction import Transaction
from holdfast.store.values import HeldKey, KeyPage


def deleted_keys(
    connection: sqlite3.Connection, instant: int, cursor: str | None, limit: int
) -> KeyPage:
    """Return open keys of deleted jobs; see ``PortableStore.deleted_keys``."""
    after = msgspec.json.decode(cursor, type=tuple[str, str]) if cursor else ("", "")
    rows = connection.execute(statement("deleted_keys"), (*after, instant, limit)).fetchall()
    keys = tuple(
        HeldKey(scope, key, digest, moment(expires_at), id_of(gone))
        for scope, key, digest, expires_at, gone in rows
    )
    return KeyPage(keys, _cursor(keys[-1]) if len(keys) == limit else None)


def _cursor(held: HeldKey) -> str:
    return msgspec.json.encode((held.scope, held.key)).decode()


def adopt_keys(tx: Transaction, keys: Sequence[HeldKey]) -> None:
    """Write keys of deleted jobs; see ``PortableStore.adopt_keys``."""
    tx.many(
        "adopt_key",
        [(k.scope, k.key, k.digest, micros(k.expires_at), key_of(k.job_id)) for k in keys],
    )
