"""Running our statements on a connection of ours, without psycopg's cursors.

A cursor looks up how to send and to read every value anew, which costs more than sending it. Here
a statement is prepared when a connection first runs it, and arrays go out as we packed them.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Protocol

from psycopg import AsyncRawCursor, adapt
from psycopg.abc import Buffer
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from holdfast.store.postgres import arrays
from holdfast.store.postgres.arrays import Column
from holdfast.store.postgres.line import Line, Prepared
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.sql import Statement, statement

Params = Mapping[str, object]

LONGEST_WORD, MOST_WORDS = 32, 1000
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class _Words(dict[str, bytes]):
    """Texts as they are sent. Names and states come again and again; ids are longer, and do not."""

    def __missing__(self, value: str) -> bytes:
        sent = arrays.text(value)
        if len(value) <= LONGEST_WORD:
            if len(self) >= MOST_WORDS:
                self.clear()
            self[value] = sent
        return sent


_SCALARS: Mapping[int, Callable[..., Buffer]] = {
    16: struct.Struct("!?").pack,
    17: memoryview,
    20: struct.Struct("!q").pack,
    25: _Words().__getitem__,
    701: struct.Struct("!d").pack,
    1184: arrays.moment,
}
"""How single values are packed, by what PostgreSQL calls their type."""
_OIDS: Mapping[type, int] = {bool: 16, bytes: 17, int: 20, str: 25, float: 701, datetime: 1184}

_names = itertools.count()


class Statements(Protocol):
    """Something that runs our statements: a connection of ours, or one of the caller's."""

    async def run(self, name: str, params: Params) -> list[Row]:
        """Run the statement of ``queries/`` with this name."""
        ...


class Session:
    """One of our connections, in the hands of one call."""

    def __init__(self, connection: Line, schema: str, *, prepare: bool) -> None:
        self.connection = connection
        self._schema = schema
        self._prepare = prepare

    async def run(self, name: str, params: Params, *, prepare: bool = True) -> list[Row]:
        if not (prepare and self._prepare):
            return await self._run_once(statement(name, self._schema), params)
        line = self.connection
        known = line.prepared.get(name) or await self._prepared(name)
        sent = [
            None if (value := params[given]) is None else pack(value)
            for given, pack in known.packers
        ]
        line.pgconn.send_query_prepared(known.name, sent, known.formats, Format.BINARY)
        result = await self._answer()
        return self._rows(result) if result.nfields else []

    async def script(self, text: bytes) -> list[Row]:
        """Run statements as they are, several at once; return the rows of the last one."""
        self.connection.pgconn.send_query(text)
        return self._rows(await self._answer())

    async def _prepared(self, name: str) -> Prepared:
        line, sql = self.connection, statement(name, self._schema)
        known = prepared(f"holdfast_{next(_names)}".encode(), sql)
        line.pgconn.send_prepare(known.name, sql.sent, sql.oids)
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

    def _rows(self, result: PGresult) -> list[Row]:
        line = self.connection
        transformer = line.transformer
        if transformer is None:
            transformer = line.transformer = adapt.Transformer(line)
        transformer.set_pgresult(result)
        rows = transformer.load_rows(0, result.ntuples, tuple)
        transformer.set_pgresult(None)
        return rows

    async def _run_once(self, sql: Statement, params: Params) -> list[Row]:
        """Run a statement without preparing it."""
        values = [params[given] for given in sql.names]
        async with AsyncRawCursor(self.connection) as cursor:
            await cursor.execute(sql.sent, values, prepare=False, binary=True)
            # Not cursor.description, which makes an object of every column.
            answer = cursor.pgresult
            return await cursor.fetchall() if answer is not None and answer.nfields else []


def prepared(name: bytes, sql: Statement) -> Prepared:
    """Return what it takes to run a statement that a connection knows by this name."""
    packers = [_SCALARS.get(oid) or partial(_pack, oid) for oid in sql.oids]
    formats = [Format.BINARY] * len(packers)
    return Prepared(name, tuple(zip(sql.names, packers, strict=True)), formats)


def _pack(oid: int, value: object) -> Buffer | None:
    """Pack a column, or a value whose type the statement leaves open."""
    if isinstance(value, Column) and oid in (value.array, 0):
        return value.pack()
    if oid == 0 and (pack := _SCALARS.get(_OIDS.get(type(value), 0))):
        return pack(value)
    raise TypeError(f"{type(value)} cannot be sent as the type {oid}")
