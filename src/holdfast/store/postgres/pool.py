"""Ending calls that hang: one timer for all of them, because nearly none ever does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import AsyncConnection, IsolationLevel, ProgrammingError
from psycopg.errors import ReadOnlySqlTransaction, SerializationFailure
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.store.postgres.connection import Connection, Params, PostgresSession
from holdfast.store.postgres.errors import OURS, in_our_words, is_lost, translated, words
from holdfast.store.postgres.rows import Row, adapters
from holdfast.store.postgres.settings import PostgresSettings, conninfo

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from holdfast.store.postgres.rows import Row


class CallTimeouts:
    """Cuts every connection whose call takes longer than so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[AsyncConnection[Row], float] = {}
        """The connections in use and when each is to be cut, the first one first."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self, connection: AsyncConnection[Row]) -> None:
        """Watch over a call."""
        loop = asyncio.get_running_loop()
        self._due[connection] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look, loop)

    def stop(self, connection: AsyncConnection[Row]) -> None:
        """Let go of a call that has ended; the timer may find nothing to do."""
        self._due.pop(connection, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = max(loop.time(), self._timer.when()) if self._timer else loop.time()
        for connection in [each for each, due in self._due.items() if due <= now]:
            del self._due[connection]
            cut(connection)
        next_due = next(iter(self._due.values()), None)
        self._timer = None if next_due is None else loop.call_at(next_due, self._look, loop)


def cut(connection: AsyncConnection[Row]) -> None:
    """End a call: whoever waits for the server sees the connection close."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)


T = TypeVar("T")

logging.getLogger("psycopg").addHandler(logging.NullHandler())
# What its pool warns of is in our errors too. A program that set up no log would else find it on
# its stderr, and between our own lines of JSON; one that did still hears of it.

Callback = Callable[[Connection], Awaitable[None]]
"""What a pool does with a connection."""

TRIES = 6
"""How often a call is made that lost to another transaction (deadlock, serialization)."""

WARM = 4
"""Connections kept at hand: each knows its plans and has the tables' pages before it."""
RETURN_EVERY = 1000
"""Calls after which one goes back, so that the pool can replace it when it is old."""

_SESSION = {
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
# A fresh jobs table has no statistics. The planner would then collect and sort all ready jobs for
# every claim, and read the whole table for every swap: 25 times slower, both seen. Generic plans
# do neither, and are made once. Without scans from end to end, jobs are reached by their numbers
# however few there are, and so locked in that order. Searches, which need all means, turn them on.

_LIMITS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
NO_LIMIT = timedelta(0)


class Pool:
    """The pool, and the rules for using it."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self.limit = settings.timeout.total_seconds()
        """The longest any statement may take, in seconds."""
        self._adapters = adapters()
        self._pool = self._own_pool()
        self._is_spent = False
        self._warm: list[PostgresSession] = []
        """Connections of the pool that are kept at hand, the one used last at the end."""
        self._room = WARM
        self._alarm = CallTimeouts(self.limit + 1)
        self._trouble: Exception | None = None
        """Why the newest try to open a connection failed, if it did."""
        self._era = 0
        """How often the server was found to take no writes: earlier connections lead there."""
        self._waiting = 0
        self._used = 0

    @property
    def wait(self) -> float:
        """The longest to wait for a connection, in seconds."""
        return min(self.limit, self._settings.wait.total_seconds())

    async def open(self) -> None:
        await self._cool()  # should this be a second start: the pool waits for what is in it
        if self._is_spent:  # a pool opens only once
            self._pool, self._is_spent = self._own_pool(), False
        self._alarm = CallTimeouts(self.limit + 1)  # whose timer may be of another loop
        earlier = _cancellations()
        try:
            with self._patience():
                await self._pool.open(wait=True, timeout=self.wait)
            _heed(earlier)
            self._room = WARM
        except BaseException:
            await self.close()
            raise

    async def _cool(self) -> None:
        self._room = 0
        while self._warm:
            await give_back(self._pool, self._warm.pop().connection)

    async def close(self) -> None:
        await self._cool()
        self._is_spent = True
        await self._pool.close()

    def run(self, name: str, params: Params) -> Coroutine[Any, Any, list[Row]]:
        """Run one statement, committed when it returns."""
        return self._insisting(lambda session: session.run(name, params))

    async def atomically(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        """Run some statements as one transaction; again from the start if it lost to another."""
        return await self._insisting(partial(_as_one, work))

    async def _insisting(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        for attempt in range(1, TRIES + 1):
            try:
                session = self._at_hand() or await self.borrow()
                self._alarm.start(session.connection)
                try:
                    return await work(session)
                except ReadOnlySqlTransaction:
                    await self._forsake()
                    raise
                finally:
                    self._alarm.stop(session.connection)
                    if not self._keeps(session):
                        await give_back(self._pool, session.connection)
            except OURS as error:
                if attempt == TRIES or not is_lost(error):
                    raise in_our_words(error) from error
                if isinstance(error, SerializationFailure):
                    work = partial(_as_one, work)  # at our level, not at that of the role
        raise AssertionError("the loop returns or raises")

    async def connect(self, dsn: str = "") -> AsyncConnection[Row]:
        """Open a connection outside the pool: to listen somewhere, or for work that may last."""
        told = conninfo(dsn, {}) if dsn else self._conninfo(NO_LIMIT)
        try:
            with translated():
                connection = await AsyncConnection.connect(
                    told, autocommit=True, prepare_threshold=None, context=self._adapters
                )
        except ProgrammingError as error:  # of psycopg, about what the URL says
            raise StoreError(words(error)) from error
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        return connection

    def _at_hand(self) -> PostgresSession | None:
        """Take the connection used last, unless it is to be looked at first."""
        if self._warm and self._warm[-1].connection.ear:
            return self._warm.pop()
        return None

    async def borrow(self) -> PostgresSession:
        """Take the connection used last, or one of the pool, which would hand them out in turn."""
        while self._warm:
            session = self._warm.pop()
            if session.connection.ear or not session.connection.has_said():
                return session
            await give_back(self._pool, session.connection)  # to be replaced if it was closed
        self._waiting += 1
        try:
            return self.wrapped(await self.taken_from(self._pool))
        finally:
            self._waiting -= 1

    async def taken_from(self, pool: AsyncConnectionPool[Connection]) -> Connection:
        """Take a connection out of a pool; it waits with ``wait_for``, see ``_heed``."""
        earlier = _cancellations()
        with self._patience():
            connection = await pool.getconn(timeout=self.wait)
            while connection.era != self._era:
                await connection.close()
                await give_back(pool, connection)  # which opens another one
                connection = await pool.getconn(timeout=self.wait)
        try:
            _heed(earlier)
        except asyncio.CancelledError:
            await give_back(pool, connection)
            raise
        return connection

    @contextlib.contextmanager
    def _patience(self) -> Iterator[None]:
        """Say why there was no connection in time: the pool knows only that there was none."""
        try:
            yield
        except PoolTimeout:
            if self._trouble is not None:
                raise in_our_words(self._trouble) from self._trouble
            told = f"all connections are busy for {self.wait:g} s already"
            raise StoreUnavailableError(
                f"PostgreSQL: {told} (pool={self._settings.pool} in the URL)"
            ) from None
        except OURS as error:
            raise in_our_words(error) from error

    async def _forsake(self) -> None:
        """Use no connection again that is open now: the address may lead to a primary again."""
        self._era += 1
        while self._warm:
            await give_back(self._pool, self._warm.pop().connection)

    def _keeps(self, session: PostgresSession) -> bool:
        """Keep a sound connection at hand unless somebody waits; the pool minds their age."""
        self._used += 1
        if (
            self._waiting
            or len(self._warm) >= self._room
            or self._used % RETURN_EVERY == 0
            or session.connection.era != self._era
            or session.connection.pgconn.transaction_status != TransactionStatus.IDLE
        ):
            return False
        self._warm.append(session)
        return True

    def wrapped(self, connection: Connection) -> PostgresSession:
        """Return what runs our statements on a connection of ours."""
        return PostgresSession(
            connection, self._settings.schema, prepare=not self._settings.pgbouncer
        )

    def _own_pool(self) -> AsyncConnectionPool[Connection]:
        return self._new_pool(self._conninfo(self._settings.timeout), self._configure)

    def guest_pool(self, reset: Callback | None) -> AsyncConnectionPool[Connection]:
        """Return a pool, not open yet, of sessions as the server and the role make them."""
        return self._new_pool(conninfo(self._settings.dsn, {}), self._sign, reset)

    def _new_pool(
        self, told: str, configure: Callback, reset: Callback | None = None
    ) -> AsyncConnectionPool[Connection]:
        return AsyncConnectionPool(
            told,
            connection_class=Connection,
            min_size=1,
            max_size=self._settings.pool,
            open=False,
            kwargs={
                "autocommit": True,
                "context": self._adapters,
                "prepare_threshold": None if self._settings.pgbouncer else 2,
                "tried": self._tried,
            },
            configure=configure,
            reset=reset,
            check=_check,
            timeout=self.wait,
            reconnect_timeout=self.wait,  # whoever asks next begins anew, without long pauses
        )

    def _conninfo(self, limit: timedelta) -> str:
        if self._settings.pgbouncer:
            return conninfo(self._settings.dsn, {})
        return conninfo(
            self._settings.dsn, {**_SESSION, **dict.fromkeys(_LIMITS, _milliseconds(limit))}
        )

    def _tried(self, error: Exception | None) -> None:
        self._trouble = error

    async def _sign(self, connection: Connection) -> None:
        connection.era = self._era

    async def _configure(self, connection: Connection) -> None:
        await self._sign(connection)
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        if self._settings.pgbouncer:
            await connection.execute(b"SET timezone = 'UTC'")  # the one setting it carries along


async def give_back(pool: AsyncConnectionPool[Connection], connection: Connection) -> None:
    """Return a connection to its pool, also when cancelled meanwhile: it would be lost for good."""
    await asyncio.shield(pool.putconn(connection))


async def _as_one(work: Callable[[PostgresSession], Awaitable[T]], session: PostgresSession) -> T:
    async with session.connection.transaction():
        return await work(session)


def _milliseconds(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


async def _check(connection: Connection) -> None:
    """Find out, mostly without a round trip, whether an idle connection was closed."""
    if connection.has_said():  # goodbye, most likely
        await connection.execute(b"SELECT 1")


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _heed(earlier: int) -> None:
    """Be cancelled if that was asked for since then.

    A pool waits with ``wait_for``, which until Python 3.12 forgets a cancellation that comes in
    the same moment as what it waits for, here a connection.
    """
    if _cancellations() > earlier:
        raise asyncio.CancelledError
