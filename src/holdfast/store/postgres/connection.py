"""A connection that keeps an ear on the server, instead of turning to it for every answer.

psycopg tells the event loop with each statement which socket to watch, and afterwards to watch it
no longer. That is a third of what a short call costs its client.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import socket
import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, adapt
from psycopg.abc import Buffer, PQGen, Transformer
from psycopg.errors import InvalidSqlStatementName, QueryCanceled, error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait

from holdfast.store.postgres import arrays
from holdfast.store.postgres.arrays import Column
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.statements import Statement, statement

T = TypeVar("T")

CANCEL_WITHIN = 1.0
"""Seconds that whoever was cancelled waits at most for the server to hear of it."""


class Prepared(NamedTuple):
    """A statement that a connection knows."""

    name: bytes
    packers: tuple[tuple[str, Callable[..., Buffer | None]], ...]
    """The parameters in their order, and what brings each into PostgreSQL's form."""
    formats: list[Format]


class Connection(AsyncConnection[Row]):
    """A connection of ours, and the statements that were prepared on it."""

    transformer: Transformer | None = None
    ear: socket.socket | None = None
    """The same socket under a number of its own: libpq closes its own whenever it likes.
    While it is there, the loop would have told us, had the server said something unasked."""
    _heard: asyncio.Future[int] | None = None
    era = 0
    """Which of the servers it leads to, counted by whoever opened it."""

    @classmethod
    async def connect(  # type: ignore[override]  # only pools of ours call it
        cls, conninfo: str = "", *, tried: Callable[[Exception | None], None], **how: Any
    ) -> Self:
        """Connect, and tell ``tried`` how it went: a pool would keep that to itself."""
        try:
            line = await super().connect(conninfo, **how)
        except (psycopg.Error, OSError) as error:
            tried(error)
            raise
        tried(None)
        return line

    @cached_property
    def prepared(self) -> dict[str, Prepared]:
        """Its statements by their name in ``queries/``."""
        return {}

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Let a generator of psycopg's come to its end; when cancelled, the server's work too."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        try:
            return await self._drive(gen)
        except asyncio.CancelledError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await self._call_off(gen)
            raise

    async def close(self) -> None:
        """Close the connection."""
        self._turn_away()
        await super().close()

    async def _drive(self, gen: PQGen[T], *, begun: bool = False) -> T:
        try:
            wanted = gen.send(Ready.NONE) if begun else next(gen)
            while True:
                wanted = gen.send(await self._until(wanted))
        except StopIteration as end:
            done: T = end.value
            return done

    async def _call_off(self, gen: PQGen[T]) -> None:
        """Stop what the server does for us; one that does not hear it loses the connection."""
        try:
            async with asyncio.timeout(CANCEL_WITHIN):
                await self.cancel_safe(timeout=CANCEL_WITHIN)
                await self._drive(gen, begun=True)
        except QueryCanceled:
            pass
        except (psycopg.Error, OSError):  # TimeoutError is one
            self._turn_away()
            self.pgconn.finish()

    async def _until(self, wanted: int) -> int:
        """Wait until there is something to read, or room to write."""
        loop = asyncio.get_running_loop()
        if self.ear is None:
            self.ear = socket.socket(fileno=os.dup(self.pgconn.socket))
            loop.add_reader(self.ear, self._hear, Ready.R)
        elif self.has_said(0):
            return Ready.R  # to read of it: uvloop tells only once, and that may have been before
        ear = self.ear
        heard: asyncio.Future[int] = loop.create_future()
        self._heard = heard
        if wanted & Wait.W:
            loop.add_writer(ear, self._hear, Ready.W)
        try:
            return await heard
        finally:
            self._heard = None
            if wanted & Wait.W:
                loop.remove_writer(ear)

    def has_said(self, events: int = select.POLLIN) -> bool:
        """Whether there is something of this kind from the server, or the socket has broken."""
        poll = select.poll()
        poll.register(self.pgconn.socket, events)
        return bool(poll.poll(0))

    def _hear(self, ready: int) -> None:
        if self._heard is None:
            self._turn_away()  # nobody asked: the server says something of its own, or goodbye
        elif not self._heard.done():
            self._heard.set_result(ready)

    def _turn_away(self) -> None:
        if self.ear is not None:
            asyncio.get_running_loop().remove_reader(self.ear)
            self.ear.close()
            self.ear = None


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


class PostgresSession:
    """One of our connections, in the hands of one call."""

    def __init__(self, connection: Connection, schema: str, *, prepare: bool) -> None:
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
