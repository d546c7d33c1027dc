"""Completing a job in the transaction in which its handler writes.

Handlers get sessions with the settings of the server and role, from a pool of their own, because
heartbeats need the store's. A handler never sees the store's connection: it borrows one of
psycopg's over the same socket for the length of its block.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta

import psycopg
from psycopg.pq import Escaping, PGconn
from psycopg_pool import AsyncConnectionPool

from holdfast.errors import PermanentError, StaleLeaseError
from holdfast.model.job import Job
from holdfast.store.postgres.arrays import text
from holdfast.store.postgres.connection import Connection, PostgresSession
from holdfast.store.postgres.errors import UNAVAILABLE, translated
from holdfast.store.postgres.pool import Pool, return_connection, shut_down
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.settings import PostgresSettings
from holdfast.store.postgres.state import StoreState
from holdfast.store.postgres.swap import lease_mark, terminate, write_run
from holdfast.store.postgres.wake import Arrival
from holdfast.store.values import Change, Fence

BorrowedConnection = psycopg.AsyncConnection[Row] | psycopg.Connection[Row]

IDLE = timedelta(minutes=5)
"""How long a handler's transaction may stay idle: a frozen one must not keep its rows locked."""

_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL idle_in_transaction_session_timeout = {idle};
SET LOCAL holdfast.lease = '{mark}';
SET LOCAL application_name = {name};
"""
# Nothing here takes a snapshot, so that the handler may still choose another level. Heartbeats
# renew the lease meanwhile: a level above this one cannot lock a job that changed since it began.
_DEFAULT_SETTINGS = b"""
SET LOCAL statement_timeout = 0;
SET LOCAL enable_seqscan = on;
SET LOCAL enable_bitmapscan = on;
SET LOCAL plan_cache_mode = auto;
"""
"""Behind a pooler the role has the settings of the store; the queries of handlers need others."""
_CLOSED = PGconn.connect_start(b"=")  # a connection that was never opened
_RESET = b"""
CLOSE ALL;
SET SESSION AUTHORIZATION DEFAULT;
RESET ALL;
UNLISTEN *;
DISCARD TEMP;
DISCARD SEQUENCES;
SELECT pg_advisory_unlock_all(), ARRAY(SELECT name FROM pg_prepared_statements)
"""
# DISCARD ALL except for the store's statements: preparing and planning them again takes 3 ms.


class HandlerPool:
    """The pool of sessions for handlers, opened when the first handler needs one."""

    def __init__(self, pool: Pool, settings: PostgresSettings) -> None:
        self._store_pool = pool
        self._settings = settings
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._slots: asyncio.Semaphore

    @contextlib.asynccontextmanager
    async def borrow(self) -> AsyncIterator[PostgresSession]:
        """Borrow a session; wait without limit while all of them are in use.

        A server that cannot be reached raises ``StoreUnavailableError`` all the same.
        """
        pool = await self._opened()
        async with self._slots:
            connection = await self._store_pool.take_from(pool)
            try:
                yield self._store_pool.session_on(connection)
            finally:
                await return_connection(pool, connection)

    async def _opened(self) -> AsyncConnectionPool[Connection]:
        if self._pool is None:
            reset = None if self._settings.pgbouncer else self._reset
            self._pool = self._store_pool.new_handler_pool(reset)
            self._slots = asyncio.Semaphore(self._settings.pool)  # of the loop that runs now
            await self._pool.open()
        return self._pool

    async def _reset(self, connection: Connection) -> None:
        session = self._store_pool.session_on(connection)
        ((_, names),) = await session.script(_RESET)
        own = {known.name.decode() for known in connection.prepared.values()}
        if own != set(names):
            await session.script(b"DEALLOCATE ALL")
            connection.prepared.clear()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None


@contextlib.asynccontextmanager
async def transaction(
    state: StoreState,
    handlers: HandlerPool,
    fence: Fence,
    decide: Callable[[Job], Job],
    *,
    blocking: bool,
) -> AsyncIterator[BorrowedConnection]:
    """Run a handler's transaction; see ``PostgresStore.transaction``."""
    async with handlers.borrow() as session:
        try:
            with translated():
                await session.script(_begin(session, fence, state.settings))
            with borrowed_connection(session.connection, blocking=blocking) as connection:
                yield connection
            with translated():
                woken = await _settle(state, session, fence, decide)
            with translated(UNAVAILABLE):  # the handler's deferred constraints are its own
                await session.script(b"COMMIT")
        except BaseException as error:
            await _roll_back(session)
            if blocking and isinstance(error, asyncio.CancelledError):
                await terminate(state, [fence])  # the server runs a query to its end otherwise
            if isinstance(error, psycopg.Rollback) and error.transaction is None:
                return
            raise
    state.wake.notify(woken)


def _begin(session: PostgresSession, fence: Fence, settings: PostgresSettings) -> bytes:
    mark, idle = lease_mark(fence), int(IDLE.total_seconds() * 1000)
    name = Escaping(session.connection.pgconn).escape_literal(text(f"{mark} {fence.job_id}"))
    begin = _BEGIN.format(idle=idle, mark=mark, name=bytes(name).decode()).encode()
    return begin + _DEFAULT_SETTINGS if settings.pgbouncer else begin


@contextlib.contextmanager
def borrowed_connection(connection: Connection, *, blocking: bool) -> Iterator[BorrowedConnection]:
    """Return a connection of psycopg over the same socket; after the block it is closed."""
    pgconn = connection.pgconn
    borrowed = psycopg.Connection(pgconn) if blocking else psycopg.AsyncConnection(pgconn)
    borrowed._num_transactions = 1  # so that psycopg refuses commit() and rollback()
    if connection.prepare_threshold is None:  # behind a pooler
        borrowed.prepare_threshold = None
    closed: Connection | BorrowedConnection = borrowed
    try:
        yield borrowed
    except asyncio.CancelledError:
        if blocking:  # its thread may be using it: the thread keeps it, without a server
            shut_down(connection)
            closed = connection
        raise
    finally:
        closed.pgconn = _CLOSED


async def _settle(
    state: StoreState, session: PostgresSession, fence: Fence, decide: Callable[[Job], Job]
) -> list[Arrival]:
    """Write the outcome that ``decide`` returns; return what arrives for workers."""
    timeout = str(int(state.pool.limit * 1000))
    ((mark, role, *_),) = await session.run("settle", {"timeout": timeout})
    if mark != lease_mark(fence):
        raise _ended_by_handler()
    if role != "none":
        await session.script(b"RESET ROLE")
    held = await session.run("holder", {"id": fence.job_id, "token": fence.token})
    if not held:
        raise StaleLeaseError(fence.job_id)
    (before,) = state.jobs(held)
    change = Change(before, decide(before))
    written = await write_run(session, [(0, change)], state.numbers)
    if not written:
        raise StaleLeaseError(fence.job_id)
    return state.woken([change], written)


def _ended_by_handler() -> PermanentError:
    return PermanentError(
        "the handler ended the transaction itself, so nothing completed the job: leave COMMIT to"
        " the end of the block, and raise psycopg.Rollback() to undo what it wrote",
        code="TRANSACTION_ENDED",
    )


async def _roll_back(session: PostgresSession) -> None:
    """Roll back; close a connection that cannot, which has the same effect."""
    try:
        await session.script(b"ROLLBACK")
    except (psycopg.Error, OSError):
        await session.connection.close()
