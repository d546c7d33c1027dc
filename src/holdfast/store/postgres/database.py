"""Connections: bounded in time, reconnecting by themselves, errors in holdfast's own words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.store.postgres.line import Line
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.session import Params, Session, adapters
from holdfast.store.postgres.settings import Settings

T = TypeVar("T")

GUEST_IDLE = timedelta(minutes=5)
"""How long a handler's transaction may stay idle: a frozen one must not hold its rows for ever."""

TRIES = 6
"""How often a call is made that lost to another transaction (deadlock, serialization)."""

WARM = 4
"""Connections kept at hand: each knows its plans and has the tables' pages before it."""
RETURN_EVERY = 1000
"""Calls after which one goes back, so that the pool can replace it when it is old."""

_SESSION = """
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET timezone = 'UTC';
SET statement_timeout = {limit};
SET lock_timeout = {limit};
SET idle_in_transaction_session_timeout = {idle};
SET enable_bitmapscan = off;
SET plan_cache_mode = force_generic_plan;
SET jit = off
"""
# A fresh jobs table has no statistics. The planner would then collect and sort all ready jobs for
# every claim, and read the whole table for every swap: 25 times slower, both seen. Generic plans
# do neither, and are made once. Searches, which need the means, turn them on for themselves.

_CONNECTION: dict[str, str | int | None] = {
    "connect_timeout": 10,
    "application_name": "holdfast",
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


class Database:
    """The pool, and the rules for using it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._adapters = adapters()
        self._pool = self._own_pool()
        self._guests: AsyncConnectionPool[Line] | None = None
        self._warm: list[Line] = []
        """Connections of the pool that are kept at hand, the one used last at the end."""
        self._waiting = 0
        self._used = 0

    @property
    def limit(self) -> float:
        """The longest any statement may take, in seconds."""
        return self._settings.timeout.total_seconds()

    @property
    def wait(self) -> float:
        """The longest to wait for a connection, in seconds."""
        return min(self.limit, self._settings.wait.total_seconds())

    async def open(self) -> None:
        await self._cool()  # should this be a second start: the pool waits for what is in it
        earlier = _cancellations()
        try:
            with translated():
                await self._pool.open(wait=True, timeout=self.wait)
            _heed(earlier)
        except BaseException:
            await self._pool.close()
            self._pool = self._own_pool()  # a pool opens only once
            raise

    async def _cool(self) -> None:
        while self._warm:
            await self._pool.putconn(self._warm.pop())

    async def close(self) -> None:
        await self._cool()
        await self._pool.close()
        if self._guests is not None:
            await self._guests.close()

    async def run(self, name: str, params: Params) -> list[Row]:
        """Run one statement, committed when it returns."""

        return await _insisting(partial(self._once, name, params))

    async def _once(self, name: str, params: Params) -> list[Row]:
        async with self._session() as session:
            return await session.run(name, params)

    async def atomically(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run some statements as one transaction; again from the start if it lost to another."""

        async def once() -> T:
            async with self._session() as session, session.connection.transaction():
                return await work(session)

        return await _insisting(once)

    @contextlib.asynccontextmanager
    async def guest(self) -> AsyncIterator[Session]:
        """Lend a connection to a handler, from a pool of its own: heartbeats need theirs."""
        if self._guests is None:
            self._guests = self._new_pool(self._settings.pool, idle=GUEST_IDLE)
            await self._guests.open()
        earlier = _cancellations()
        with translated():
            connection = await self._guests.getconn()
        try:
            _heed(earlier)
            yield self.wrap(connection)
        finally:
            await self._guests.putconn(connection)

    async def connect(self, dsn: str) -> AsyncConnection[Row]:
        """Open a connection outside the pool."""
        with translated():
            return await AsyncConnection.connect(
                make_conninfo(dsn, **_CONNECTION),
                autocommit=True,
                prepare_threshold=None,
                context=self._adapters,
            )

    def _session(self) -> _Lent:
        return _Lent(self)

    async def borrow(self) -> Line:
        """Take the connection used last, or one of the pool, which would hand them out in turn."""
        while self._warm:
            connection = self._warm.pop()
            try:
                await _check(connection)
            except (psycopg.Error, OSError):
                await self._pool.putconn(connection)  # where it is replaced
            except BaseException:
                await self._pool.putconn(connection)
                raise
            else:
                return connection
        self._waiting += 1
        try:
            return await self._pool.getconn(timeout=self.wait)
        finally:
            self._waiting -= 1

    async def give_back(self, connection: Line) -> None:
        """Keep a sound connection at hand unless somebody waits; the pool minds their age."""
        self._used += 1
        if (
            self._waiting
            or self._pool.closed
            or len(self._warm) >= WARM
            or self._used % RETURN_EVERY == 0
            or connection.pgconn.transaction_status != TransactionStatus.IDLE
        ):
            await self._pool.putconn(connection)
        else:
            self._warm.append(connection)

    def wrap(self, connection: Line) -> Session:
        """Return what runs our statements on a connection."""
        return Session(connection, self._settings.schema, prepare=not self._settings.pgbouncer)

    def _own_pool(self) -> AsyncConnectionPool[Line]:
        return self._new_pool(self._settings.pool, idle=self._settings.timeout)

    def _new_pool(self, size: int, *, idle: timedelta) -> AsyncConnectionPool[Line]:
        return AsyncConnectionPool(
            self._settings.dsn,
            connection_class=Line,
            min_size=1,
            max_size=size,
            open=False,
            kwargs=self._arguments(),
            configure=partial(self._configure, idle=idle),
            check=_check,
            timeout=self.wait,
            reconnect_timeout=self.wait,  # whoever asks next begins anew, without long pauses
        )

    def _arguments(self) -> dict[str, object]:
        return {
            "autocommit": True,
            "context": self._adapters,
            "prepare_threshold": None if self._settings.pgbouncer else 2,
            **_CONNECTION,
        }

    async def _configure(self, connection: Line, idle: timedelta) -> None:
        text = "SET timezone = 'UTC'"  # the one setting that PgBouncer carries along
        if not self._settings.pgbouncer:
            limit = int(self.limit * 1000)
            text = _SESSION.format(limit=limit, idle=int(idle.total_seconds() * 1000))
        await connection.execute(text.encode())


class _Lent:
    """A connection for the length of one call; by hand, because every call begins here."""

    __slots__ = ("_alarm", "_connection", "_database")

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __aenter__(self) -> Session:
        database = self._database
        self._connection = connection = await database.borrow()
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(database.limit + 1, cut, connection)
        return database.wrap(connection)

    async def __aexit__(self, *_: object) -> None:
        self._alarm.cancel()
        await self._database.give_back(self._connection)


async def _check(connection: Line) -> None:
    """Find out without a round trip whether an idle connection was closed by the server."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        await connection.execute(b"SELECT 1")


def cut(connection: AsyncConnection[Row]) -> None:
    """End a call that hangs: whoever waits for the server sees the connection close."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)


async def _insisting(once: Callable[[], Awaitable[T]]) -> T:
    earlier = _cancellations()
    for attempt in range(1, TRIES + 1):
        try:
            with translated():
                done = await once()
        except _LostToAnother as error:
            if attempt == TRIES:
                raise StoreUnavailableError(str(error)) from error
        else:
            _heed(earlier)
            return done
    raise AssertionError("the loop returns or raises")


_LOST = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.UniqueViolation,
)


class _LostToAnother(Exception):
    """The transaction was rolled back so that another could go on; it may simply be repeated."""


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _heed(earlier: int) -> None:
    """Be cancelled if that was asked for since then.

    The pool waits with ``wait_for``, which until Python 3.12 forgets a cancellation that comes
    in the same moment as what it waits for, here a connection.
    """
    if _cancellations() > earlier:
        raise asyncio.CancelledError


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Say in holdfast's words what went wrong."""
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # psycopg may report only the query's end
            raise asyncio.CancelledError from error
        raise StoreUnavailableError(_words(error)) from error
    except _LOST as error:
        raise _LostToAnother(_words(error)) from error
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        raise StoreError(f"{_words(error)}: run holdfast migrate") from error
    except PoolTimeout as error:
        told = "no connection in time: the server is down, or every connection is busy"
        raise StoreUnavailableError(f"PostgreSQL: {told}") from error
    except (
        psycopg.OperationalError,
        psycopg.InterfaceError,
        psycopg.errors.ReadOnlySqlTransaction,
        psycopg.errors.IdleInTransactionSessionTimeout,
        psycopg.errors.InvalidSqlStatementName,
        PoolClosed,
        OSError,
    ) as error:
        raise StoreUnavailableError(_words(error)) from error


def _words(error: Exception) -> str:
    first = str(error).strip().splitlines()
    return f"PostgreSQL: {first[0] if first else type(error).__name__}"
