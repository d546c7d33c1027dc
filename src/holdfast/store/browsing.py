"""Reads all records of a kind, however many there are."""

from __future__ import annotations

from holdfast.store.contract import Store
from holdfast.store.values import Record


async def every_record(store: Store, kind: str) -> list[Record]:
    """Return the records of a kind in the order of their keys, page by page."""
    found: list[Record] = []
    while page := await store.browse(kind, after=found[-1].key if found else ""):
        found += page
    return found
