"""Running our statements on a connection of ours, without psycopg's cursors.

A cursor looks up how to send and to read every value anew, which costs more than sending it. Here
a statement is prepared when a connection first runs it, and arrays go out as we packed them.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import psycopg
from psycopg import AsyncRawCursor, adapt
from psycopg.abc import Buffer, Transformer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from holdfast.store.postgres import arrays
from holdfast.store.postgres.arrays import Column
from holdfast.store.postgres.line import Line
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.sql import Statement, statement

Params = Mapping[str, object]

_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_SCALARS: Mapping[type, tuple[int, Callable[..., Buffer]]] = {
    str: (25, arrays.text),
    int: (20, struct.Struct("!q").pack),
    float: (701, struct.Struct("!d").pack),
    bool: (16, struct.Struct("!?").pack),
    bytes: (17, bytes),
    datetime: (1184, arrays.moment),
}
"""The types whose values come often: what PostgreSQL calls them, and how they are packed."""

_names = itertools.count()


class Statements(Protocol):
    """Something that runs our statements: a connection of ours, or one of the caller's."""

    async def run(self, name: str, params: Params) -> list[Row]:
        """Run the statement of ``queries/`` with this name."""
        ...


class _Bytes(Loader):
    """JSON as it is; msgspec reads it."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class _VersionedBytes(Loader):
    """jsonb in binary form begins with its version."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)[1:]


class _BinaryJson(_Bytes):
    format = Format.BINARY


class _BinaryJsonb(_VersionedBytes):
    format = Format.BINARY


def adapters() -> AdaptersMap:
    """How values travel on our own connections."""
    made = AdaptersMap(psycopg.adapters)
    arrays.register(made)
    made.register_loader("json", _BinaryJson)
    made.register_loader("jsonb", _BinaryJsonb)
    return made


class Session:
    """One of our connections, in the hands of one call."""

    def __init__(self, connection: Line, schema: str, *, prepare: bool) -> None:
        self.connection = connection
        self._schema = schema
        self._prepare = prepare

    async def run(self, name: str, params: Params, *, prepare: bool = True) -> list[Row]:
        sql = statement(name, self._schema)
        values = [params[each] for each in sql.names]
        if not (prepare and self._prepare):
            return await self._run_once(sql, values)
        line = self.connection
        transformer = line.transformer
        if transformer is None:
            transformer = line.transformer = adapt.Transformer(line)
            line.prepared = {}
        sent = list(map(_sent, values, sql.oids))
        known = line.prepared.get(name) or await self._prepared(name, sql)
        formats = [Format.BINARY] * len(sent)
        line.pgconn.send_query_prepared(known, sent, formats, Format.BINARY)
        return self._rows(await self._answer(), transformer)

    async def _prepared(self, name: str, sql: Statement) -> bytes:
        line = self.connection
        known = f"holdfast_{next(_names)}".encode()
        line.pgconn.send_prepare(known, sql.sent, sql.oids)
        await self._answer()
        line.prepared[name] = known
        return known

    async def _answer(self) -> PGresult:
        line = self.connection
        results: list[PGresult] = await line.wait(execute(line.pgconn))
        result = results[-1]
        if result.status in _DONE:
            return result
        error = error_from_result(result, encoding="utf-8")
        if isinstance(error, InvalidSqlStatementName):
            line.prepared.clear()  # a handler that was lent the connection let go of them
        raise error

    def _rows(self, result: PGresult, transformer: Transformer) -> list[Row]:
        if not result.nfields:
            return []
        transformer.set_pgresult(result)
        rows = transformer.load_rows(0, result.ntuples, tuple)
        transformer.set_pgresult(None)
        return rows

    async def _run_once(self, sql: Statement, values: Sequence[object]) -> list[Row]:
        """Run a statement without preparing it."""
        async with AsyncRawCursor(self.connection) as cursor:
            await cursor.execute(sql.sent, values, prepare=False, binary=True)
            # Not cursor.description, which makes an object of every column.
            answer = cursor.pgresult
            return await cursor.fetchall() if answer is not None and answer.nfields else []


def _sent(value: object, oid: int) -> Buffer | None:
    """A value in PostgreSQL's binary form, if it is of the type that the statement expects."""
    if value is None:
        return None
    if known := _SCALARS.get(type(value)):
        fits, pack = known
        if oid in (fits, 0):
            return pack(value)
    elif isinstance(value, Column) and oid in (value.array, 0):
        return value.pack()
    raise TypeError(f"{type(value)} cannot be sent as the type {oid}")
