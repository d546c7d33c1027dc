"""The connection pool: a few warm connections, a timeout and retries for every call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, IsolationLevel, ProgrammingError
from psycopg.errors import ReadOnlySqlTransaction, SerializationFailure
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.runtime.timeouts import NEVER, SharedTimer
from holdfast.store.postgres.connection import Connection, Params, PostgresSession
from holdfast.store.postgres.errors import (
    OWN_ERRORS,
    is_retryable,
    message_of,
    translate,
    translated,
)
from holdfast.store.postgres.rows import Row, adapters
from holdfast.store.postgres.settings import NO_LIMIT, PostgresSettings, conninfo, store_conninfo

T = TypeVar("T")
Callback = Callable[[Connection], Awaitable[None]]
"""What a pool does with a connection."""

MAX_ATTEMPTS = 6
"""How often a call runs at most that lost to another transaction (deadlock, serialization)."""
WARM = 4
"""Connections kept outside the pool: each has its plans and the tables' pages in its caches."""
GROW_AFTER, QUIET_GROW_AFTER = 0.02, 0.25
"""Seconds that a call waits for a connection in use before another one is opened, and that it
waits in a quiet process: calls that it happens to make at the same moment need no second one."""
WINDOW = 5.0
"""Seconds in which calls are counted, and after which a connection without use is closed."""
QUIET_CALLS, QUIET_WAITS = 100, 2
"""A process is quiet, and keeps one connection, if it makes fewer calls in a window and no more
of them wait so long for that connection: a few calls with a thousand jobs each make it busy."""
RETURN_EVERY = 1000
"""Calls after which a connection goes back to the pool, which replaces old ones."""
logging.getLogger("psycopg").addHandler(logging.NullHandler())
# The store's errors contain what the pool of psycopg logs. Without this handler a program that
# configures no logging gets those warnings on stderr, between its own lines of JSON.


class CallTimeouts:
    """Shuts down every connection whose call takes longer than so many seconds.

    One timer serves all calls, because nearly none ever times out.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[AsyncConnection[Row], float] = {}
        """The connections in use and when each is to be shut down, the earliest first."""
        self._timer = SharedTimer(self._expire)

    def start(self, connection: AsyncConnection[Row]) -> None:
        """Start the timeout of a call."""
        due = asyncio.get_running_loop().time() + self._seconds
        self._due[connection] = due
        if due < self._timer.at:
            self._timer.set(due)

    def stop(self, connection: AsyncConnection[Row]) -> None:
        """Stop the timeout of a call that has ended; the timer itself keeps running."""
        self._due.pop(connection, None)

    def _expire(self, now: float) -> float:
        for connection in [each for each, due in self._due.items() if due <= now]:
            del self._due[connection]
            shut_down(connection)
        return next(iter(self._due.values()), NEVER)


def shut_down(connection: AsyncConnection[Row]) -> None:
    """End the call that waits for the server on this connection: it sees the socket close."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as duplicate,
    ):
        duplicate.shutdown(socket.SHUT_RDWR)


class Pool:
    """The connections of the store, and the rules for using them."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self.limit = settings.timeout.total_seconds()
        """The longest a statement may take, in seconds."""
        self._adapters = adapters()
        self._pool = self._store_pool()
        self._is_closed = False
        self._warm: list[PostgresSession] = []
        """Connections kept outside the pool, the one used last at the end."""
        self._max_warm = WARM
        self._timeouts = CallTimeouts(self.limit + 1)
        self._connect_error: Exception | None = None
        """Why the last attempt to open a connection failed, if it did."""
        self._generation = 0
        """How often the server refused writes: older connections lead to such a server."""
        self._waiting = 0
        self._lent = 0
        """How many connections calls use."""
        self._handed = 0
        """How many are on their way from one call to another."""
        self._next: deque[asyncio.Future[PostgresSession]] = deque()
        """Calls that wait for the next connection to be free."""
        self._used = 0
        self._window = (float("-inf"), 0)
        """When calls were counted last, and how many there had been."""
        self._waits = 0
        """How many calls have waited for the only connection since then."""
        self._is_quiet = True

    @property
    def wait(self) -> float:
        """The longest to wait for a connection, in seconds."""
        return min(self.limit, self._settings.wait.total_seconds())

    async def open(self) -> None:
        await self._return_warm()  # in case of a second start: the pool waits for all of its own
        if self._is_closed:  # a pool opens only once
            self._pool, self._is_closed = self._store_pool(), False
        self._timeouts = CallTimeouts(self.limit + 1)  # the timer may be of another loop
        self._next.clear()
        earlier = _cancellations()
        try:
            with self._connection_errors():
                await self._pool.open(wait=True, timeout=self.wait)
            _raise_if_cancelled(earlier)
            self._max_warm = WARM
        except BaseException:
            await self.close()
            raise

    async def _return_warm(self) -> None:
        self._max_warm = 0
        while self._warm:
            await return_connection(self._pool, self._warm.pop().connection)

    async def close(self) -> None:
        await self._return_warm()
        self._is_closed = True
        await self._pool.close()

    def run(self, name: str, params: Params) -> Coroutine[Any, Any, list[Row]]:
        """Run one statement; it is committed when this returns."""
        return self._with_retries(lambda session: session.run(name, params))

    async def atomically(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        """Run statements as one transaction; repeat it if it lost to another one."""
        return await self._with_retries(partial(_in_transaction, work))

    async def _with_retries(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                session = self._warm_session() or await self.borrow()
                self._timeouts.start(session.connection)
                self._lent += 1
                try:
                    return await work(session)
                except ReadOnlySqlTransaction:
                    await self._discard_connections()
                    raise
                finally:
                    self._lent -= 1
                    self._timeouts.stop(session.connection)
                    if not self._keep_warm(session):
                        await return_connection(self._pool, session.connection)
            except OWN_ERRORS as error:
                if attempt == MAX_ATTEMPTS or not is_retryable(error):
                    raise translate(error) from error
                if isinstance(error, SerializationFailure):
                    work = partial(
                        _in_transaction, work
                    )  # at READ COMMITTED, not the level of the role
        raise AssertionError("the loop returns or raises")

    async def connect(self, dsn: str = "") -> AsyncConnection[Row]:
        """Open a connection outside the pool: to listen, or for work that may take long."""
        target = conninfo(dsn, {}) if dsn else store_conninfo(self._settings, NO_LIMIT)
        try:
            with translated():
                connection = await AsyncConnection.connect(
                    target, autocommit=True, prepare_threshold=None, context=self._adapters
                )
        except ProgrammingError as error:  # of psycopg, about the URL
            raise StoreError(message_of(error)) from error
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        return connection

    def _warm_session(self) -> PostgresSession | None:
        """Take the connection used last, unless it must be checked first."""
        if self._warm and self._warm[-1].connection.reader_socket:
            return self._warm.pop()
        return None

    async def borrow(self) -> PostgresSession:
        """Take the connection used last, or one of the pool, which rotates them."""
        is_used = self._lent or self._handed or self._waiting
        if is_used and not self._warm and (session := await self._next_free()):
            return session
        while self._warm:
            session = self._warm.pop()
            if session.connection.reader_socket or not session.connection.has_input():
                return session
            await return_connection(self._pool, session.connection)  # which replaces a closed one
        self._waiting += 1
        try:
            return self.session_on(await self.take_from(self._pool))
        finally:
            self._waiting -= 1

    async def _next_free(self) -> PostgresSession | None:
        """Wait a moment for a connection that another call uses."""
        free: asyncio.Future[PostgresSession] = asyncio.get_running_loop().create_future()
        self._next.append(free)
        try:
            await asyncio.wait([free], timeout=GROW_AFTER)
            if not free.done() and self._is_quiet_after_wait():
                await asyncio.wait([free], timeout=QUIET_GROW_AFTER)
        except asyncio.CancelledError:
            if not free.cancel():
                self._handed -= 1
                await return_connection(self._pool, free.result().connection)
            raise
        if free.cancel():
            return None
        self._handed -= 1
        return free.result()

    async def take_from(self, pool: AsyncConnectionPool[Connection]) -> Connection:
        """Take a connection from a pool; it uses ``wait_for``, see ``_raise_if_cancelled``."""
        earlier = _cancellations()
        with self._connection_errors():
            connection = await pool.getconn(timeout=self.wait)
            while connection.generation != self._generation:
                await connection.close()
                await return_connection(pool, connection)  # which opens another one
                connection = await pool.getconn(timeout=self.wait)
        try:
            _raise_if_cancelled(earlier)
        except asyncio.CancelledError:
            await return_connection(pool, connection)
            raise
        return connection

    @contextlib.contextmanager
    def _connection_errors(self) -> Iterator[None]:
        """Report why there was no connection in time: the pool only reports a timeout."""
        try:
            yield
        except PoolTimeout:
            if self._connect_error is not None:
                raise translate(self._connect_error) from self._connect_error
            raise StoreUnavailableError(
                f"PostgreSQL: all connections have been busy for {self.wait:g} s"
                f" (pool={self._settings.pool} in the URL)"
            ) from None
        except OWN_ERRORS as error:
            raise translate(error) from error

    async def _discard_connections(self) -> None:
        """Stop using every open connection: a new one may lead to a primary."""
        self._generation += 1
        while self._warm:
            await return_connection(self._pool, self._warm.pop().connection)

    def _keep_warm(self, session: PostgresSession) -> bool:
        """Keep a healthy connection unless a call waits; the pool replaces or closes others."""
        self._count_call()
        if (
            self._waiting
            or len(self._warm) >= self._max_warm
            or self._used % RETURN_EVERY == 0
            or (self._is_quiet and self._warm)
            or session.connection.generation != self._generation
            or session.connection.pgconn.transaction_status != TransactionStatus.IDLE
        ):
            return False
        while self._next:
            waiting = self._next.popleft()
            if not waiting.done():
                waiting.set_result(session)
                self._handed += 1
                return True
        self._warm.append(session)
        return True

    def _count_call(self) -> None:
        self._used += 1
        (begun, before), now = self._window, asyncio.get_running_loop().time()
        if self._used - before >= QUIET_CALLS or self._waits > QUIET_WAITS:
            self._is_quiet, self._window, self._waits = False, (now, self._used), 0
        elif now - begun >= WINDOW:
            self._is_quiet, self._window, self._waits = True, (now, self._used), 0

    def _is_quiet_after_wait(self) -> bool:
        self._waits += 1
        self._is_quiet = self._is_quiet and self._waits <= QUIET_WAITS
        return self._is_quiet

    def session_on(self, connection: Connection) -> PostgresSession:
        """Return a session that runs the store's statements on a connection."""
        return PostgresSession(
            connection, self._settings.schema, prepare=not self._settings.pgbouncer
        )

    def _store_pool(self) -> AsyncConnectionPool[Connection]:
        return self._new_pool(
            store_conninfo(self._settings, self._settings.timeout), self._configure
        )

    def new_handler_pool(self, reset: Callback | None) -> AsyncConnectionPool[Connection]:
        """Return a pool, not open yet, of sessions with the settings of the server and role."""
        return self._new_pool(conninfo(self._settings.dsn, {}), self._set_generation, reset)

    def _new_pool(
        self, target: str, configure: Callback, reset: Callback | None = None
    ) -> AsyncConnectionPool[Connection]:
        return AsyncConnectionPool(
            target,
            connection_class=Connection,
            min_size=1,
            max_size=self._settings.pool,
            open=False,
            kwargs={
                "autocommit": True,
                "context": self._adapters,
                "prepare_threshold": None if self._settings.pgbouncer else 2,
                "report": self._connect_tried,
            },
            configure=configure,
            reset=reset,
            check=_check,
            timeout=self.wait,
            max_idle=WINDOW,
            reconnect_timeout=self.wait,  # the next call starts over, without long pauses
        )

    def _connect_tried(self, error: Exception | None) -> None:
        self._connect_error = error

    async def _set_generation(self, connection: Connection) -> None:
        connection.generation = self._generation

    async def _configure(self, connection: Connection) -> None:
        await self._set_generation(connection)
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        if self._settings.pgbouncer:
            await connection.execute(
                b"SET timezone = 'UTC'"
            )  # the one setting that it carries along


async def return_connection(pool: AsyncConnectionPool[Connection], connection: Connection) -> None:
    """Return a connection to its pool even if cancelled meanwhile: else the pool loses it."""
    await asyncio.shield(pool.putconn(connection))


async def _in_transaction(
    work: Callable[[PostgresSession], Awaitable[T]], session: PostgresSession
) -> T:
    async with session.connection.transaction():
        return await work(session)


async def _check(connection: Connection) -> None:
    """Check, mostly without a round trip, whether an idle connection was closed."""
    if connection.has_input():  # most likely the server closed it
        await connection.execute(b"SELECT 1")


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _raise_if_cancelled(earlier: int) -> None:
    """Raise CancelledError if the task was cancelled since.

    A pool waits with ``wait_for``, which until Python 3.12 loses a cancellation that arrives
    together with the result it waits for, here a connection.
    """
    if _cancellations() > earlier:
        raise asyncio.CancelledError
