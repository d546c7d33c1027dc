"""Reads and writes operations on many jobs in the store.

An operation that has not ended has a second, empty record, so that those who run operations find
the open ones without reading the others.
"""

from __future__ import annotations

import msgspec

from holdfast.model.bulk import BulkOperation
from holdfast.model.reserved import BULK, BULK_OPEN
from holdfast.store import Record, RecordWrite, Store
from holdfast.store.browsing import every_record
from holdfast.store.damage import readable

MOST_KEPT = 200
"""Operations of one namespace that are kept; older ones that have ended are deleted."""
MOST_OPEN = 20
"""Operations of one namespace that have not ended."""


class StoredBulk(msgspec.Struct, frozen=True, kw_only=True):
    """An operation with what is needed to resume it."""

    operation: BulkOperation
    namespace: str | None = None
    """The namespace whose jobs it changes; None: those of every namespace."""
    ids: tuple[str, ...] = ()
    """The jobs that were given by id."""
    cursor: str | None = None
    """Where the search continues, or how many ids have been dealt with."""
    is_last: bool = False
    """Whether nothing follows the page."""
    page: tuple[str, ...] | None = None
    """Jobs that are being changed; after a crash some of them have been."""


async def create(store: Store, stored: StoredBulk) -> None:
    """Store a new operation, open."""
    key = stored.operation.id
    opened = RecordWrite(kind=BULK_OPEN, key=key, data=b"{}")
    await store.keep([_write(stored, 0), opened])


async def read(store: Store, operation_id: str) -> tuple[StoredBulk | None, int]:
    """Return an operation and its version; None when there is none that can be read."""
    (record,) = await store.records(BULK, [operation_id])
    found = next(iter(readable([record] if record else [], _decoded)), None)
    return found, record.version if record else 0


async def write(store: Store, stored: StoredBulk, version: int) -> int | None:
    """Write an operation if it still has this version; return its new one, or None."""
    (written,) = await store.keep([_write(stored, version)])
    if written is not None and stored.operation.ended:
        await close(store, stored.operation.id)
    return written


async def close(store: Store, operation_id: str) -> None:
    """Record that an operation has ended."""
    await store.keep([RecordWrite(kind=BULK_OPEN, key=operation_id, data=None)])


async def newest(store: Store, *, after: str = "", limit: int) -> list[StoredBulk]:
    """Return operations, the newest first; ``after`` continues behind an id."""
    found = await store.browse(BULK, after=after, limit=limit, last=True)
    return list(readable(found, _decoded))


async def open_ids(store: Store) -> list[str]:
    """Return the ids of the operations that have not ended, the oldest first."""
    return [record.key for record in await every_record(store, BULK_OPEN)]


async def namespaces(store: Store) -> list[str]:
    """Return the namespaces that have open operations, on a store that shows all of them."""
    kinds = [kind.partition("@") for kind in await store.kinds()]
    return [namespace for kind, _, namespace in kinds if kind == BULK_OPEN]


async def prune(store: Store) -> None:
    """Delete the oldest operations beyond ``MOST_KEPT``; open ones stay."""
    found = await store.browse(BULK, last=True, limit=MOST_KEPT + 100)
    still_open = set(await open_ids(store))
    old = [record.key for record in found[MOST_KEPT:] if record.key not in still_open]
    if old:
        await store.keep([RecordWrite(kind=BULK, key=key, data=None) for key in old])


def _write(stored: StoredBulk, version: int) -> RecordWrite:
    data = msgspec.json.encode(stored)
    return RecordWrite(kind=BULK, key=stored.operation.id, data=data, version=version)


def _decoded(record: Record) -> StoredBulk:
    return msgspec.json.decode(record.data, type=StoredBulk)
