"""How values come from PostgreSQL: what statements return many times over stays bytes at first.

Alike bytes are then read once. An instant takes psycopg 0.4 us, twenty times a number.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import Format
from psycopg.rows import TupleRow
from psycopg.types.composite import RecordBinaryLoader
from psycopg.types.string import ByteaBinaryLoader

from holdfast.store.postgres import arrays

_RECORD = 2249


class _Jsonb(Loader):
    """In binary form it begins with its version."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)[1:]


def adapters() -> AdaptersMap:
    """How values travel on our own connections; msgspec reads JSON."""
    made = AdaptersMap(psycopg.adapters)
    arrays.register(made)
    made.register_loader("json", ByteaBinaryLoader)
    made.register_loader("jsonb", _Jsonb)
    made.register_loader("record", ByteaBinaryLoader)
    return made


class Instants(dict[bytes | None, datetime | None]):
    """Instants by what ``timestamptz_send`` makes of them; null stays null."""

    def __missing__(self, data: bytes | None) -> datetime | None:
        at = self[data] = None if data is None else arrays.instant(data)
        return at


_loader = RecordBinaryLoader(_RECORD, adapters())


@lru_cache(maxsize=16)  # for those who ask one after the other
def record_of(data: bytes) -> TupleRow:
    """The values of a ``ROW``."""
    return _loader.load(data)
