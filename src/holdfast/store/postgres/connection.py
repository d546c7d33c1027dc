"""A connection that watches its socket all the time instead of once per statement.

psycopg registers the socket with the event loop for each statement and unregisters it afterwards.
That is a third of the client's cost of a short call.
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
Params = Mapping[str, object]

CANCEL_WITHIN = 1.0
"""Seconds that a cancelled call waits at most for the server to cancel the statement."""


class Prepared(NamedTuple):
    """A statement that is prepared on a connection."""

    name: bytes
    packers: tuple[tuple[str, Callable[..., Buffer | None]], ...]
    """The parameters in their order, and the function that encodes each for PostgreSQL."""
    formats: list[Format]


class Connection(AsyncConnection[Row]):
    """A connection of the store, and the statements that are prepared on it."""

    transformer: Transformer | None = None
    reader_socket: socket.socket | None = None
    """The same socket under a descriptor of its own: libpq closes its own at any time. While it
    is set, the server has sent nothing unsolicited: the loop would have reported it."""
    _ready: asyncio.Future[int] | None = None
    generation = 0
    """The server it leads to, as counted by the pool that opened it."""

    @classmethod
    async def connect(  # type: ignore[override]  # only the pools of the store call it
        cls, conninfo: str = "", *, report: Callable[[Exception | None], None], **options: Any
    ) -> Self:
        """Connect, and report the error or None: a pool keeps that to itself."""
        try:
            connection = await super().connect(conninfo, **options)
        except (psycopg.Error, OSError) as error:
            report(error)
            raise
        report(None)
        return connection

    @cached_property
    def prepared(self) -> dict[str, Prepared]:
        """Its statements by their name in ``queries/``."""
        return {}

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Run a generator of psycopg to its end; a cancellation also cancels the statement."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        try:
            return await self._drive(gen)
        except asyncio.CancelledError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await self._cancel_statement(gen)
            raise

    async def close(self) -> None:
        """Close the connection."""
        self._stop_reading()
        await super().close()

    async def _drive(self, gen: PQGen[T], *, begun: bool = False) -> T:
        try:
            wanted = gen.send(Ready.NONE) if begun else next(gen)
            while True:
                wanted = gen.send(await self._until_ready(wanted))
        except StopIteration as end:
            done: T = end.value
            return done

    async def _cancel_statement(self, gen: PQGen[T]) -> None:
        """Cancel the statement; close the connection if the server does not react in time."""
        try:
            async with asyncio.timeout(CANCEL_WITHIN):
                await self.cancel_safe(timeout=CANCEL_WITHIN)
                await self._drive(gen, begun=True)
        except QueryCanceled:
            pass
        except (psycopg.Error, OSError):  # TimeoutError is one
            self._stop_reading()
            self.pgconn.finish()

    async def _until_ready(self, wanted: int) -> int:
        """Wait until there is input to read, or room to write."""
        loop = asyncio.get_running_loop()
        if self.reader_socket is None:
            self.reader_socket = socket.socket(fileno=os.dup(self.pgconn.socket))
            loop.add_reader(self.reader_socket, self._on_readable, Ready.R)
        elif self.has_input(0):
            return Ready.R  # a broken socket: uvloop reports it only once, perhaps before this wait
        reader = self.reader_socket
        ready: asyncio.Future[int] = loop.create_future()
        self._ready = ready
        if wanted & Wait.W:
            loop.add_writer(reader, self._on_readable, Ready.W)
        try:
            return await ready
        finally:
            self._ready = None
            if wanted & Wait.W:
                loop.remove_writer(reader)

    def has_input(self, events: int = select.POLLIN) -> bool:
        """Whether the socket has one of these events, or is broken."""
        poll = select.poll()
        poll.register(self.pgconn.socket, events)
        return bool(poll.poll(0))

    def _on_readable(self, ready: int) -> None:
        """Resume the call that waits; also called when the socket is writable."""
        if self._ready is None:
            self._stop_reading()  # no call is waiting: an unsolicited message, or the server closes
        elif not self._ready.done():
            self._ready.set_result(ready)

    def _stop_reading(self) -> None:
        if self.reader_socket is not None:
            asyncio.get_running_loop().remove_reader(self.reader_socket)
            self.reader_socket.close()
            self.reader_socket = None


LONGEST_CACHED, MAX_CACHED = 32, 1000
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class _EncodedTexts(dict[str, bytes]):
    """Encoded texts: names and states recur; ids are longer, and do not."""

    def __missing__(self, value: str) -> bytes:
        encoded = arrays.text(value)
        if len(value) <= LONGEST_CACHED:
            if len(self) >= MAX_CACHED:
                self.clear()
            self[value] = encoded
        return encoded


_SCALARS: Mapping[int, Callable[..., Buffer]] = {
    16: struct.Struct("!?").pack,
    17: memoryview,
    20: struct.Struct("!q").pack,
    25: _EncodedTexts().__getitem__,
    701: struct.Struct("!d").pack,
    1184: arrays.moment,
}
"""How single values are packed, by the OID of their type."""
_OIDS: Mapping[type, int] = {bool: 16, bytes: 17, int: 20, str: 25, float: 701, datetime: 1184}

_names = itertools.count()


class StatementRunner(Protocol):
    """Runs the store's statements: a connection of the store, or one of the caller's."""

    async def run(self, name: str, params: Params) -> list[Row]:
        """Run the statement of ``queries/`` with this name."""
        ...


class PostgresSession:
    """A connection of the store while one call uses it."""

    def __init__(self, connection: Connection, schema: str, *, prepare: bool) -> None:
        self.connection = connection
        self._schema = schema
        self._prepare = prepare

    async def run(self, name: str, params: Params, *, prepare: bool = True) -> list[Row]:
        if not (prepare and self._prepare):
            return await self.run_once(statement(name, self._schema), params)
        connection = self.connection
        known = connection.prepared.get(name) or await self._prepared(name)
        values = [
            None if (value := params[parameter]) is None else pack(value)
            for parameter, pack in known.packers
        ]
        connection.pgconn.send_query_prepared(known.name, values, known.formats, Format.BINARY)
        result = await self._result()
        return self._rows(result) if result.nfields else []

    async def script(self, text: bytes) -> list[Row]:
        """Run several statements at once, without parameters; return the rows of the last one."""
        self.connection.pgconn.send_query(text)
        return self._rows(await self._result())

    async def _prepared(self, name: str) -> Prepared:
        connection, sql = self.connection, statement(name, self._schema)
        known = prepared(f"holdfast_{next(_names)}".encode(), sql)
        connection.pgconn.send_prepare(known.name, sql.sent, sql.oids)
        await self._result()
        connection.prepared[name] = known
        return known

    async def _result(self) -> PGresult:
        connection = self.connection
        results: list[PGresult] = await connection.wait(execute(connection.pgconn))
        result = results[-1]
        if result.status in _DONE:
            return result
        error = error_from_result(result, encoding="utf-8")
        if isinstance(error, InvalidSqlStatementName):
            connection.prepared.clear()  # a handler that borrowed the connection deallocated them
        raise error

    def _rows(self, result: PGresult) -> list[Row]:
        connection = self.connection
        transformer = connection.transformer
        if transformer is None:
            transformer = connection.transformer = adapt.Transformer(connection)
        transformer.set_pgresult(result)
        rows = transformer.load_rows(0, result.ntuples, tuple)
        transformer.set_pgresult(None)
        return rows

    async def run_once(self, sql: Statement, params: Params) -> list[Row]:
        """Run a statement without preparing it."""
        values = [params[parameter] for parameter in sql.names]
        async with AsyncRawCursor(self.connection) as cursor:
            await cursor.execute(sql.sent, values, prepare=False, binary=True)
            # Not cursor.description, which makes an object of every column.
            result = cursor.pgresult
            return await cursor.fetchall() if result is not None and result.nfields else []


def prepared(name: bytes, sql: Statement) -> Prepared:
    """Return how to run a statement that is prepared under this name."""
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
