"""Connections for handlers: sessions as the server makes them, in which nothing stays.

They come from a pool of their own, because heartbeats need theirs. A handler never sees our
connection: it is lent one of psycopg's that speaks over the same line, for the length of its block.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import psycopg
from psycopg.pq import PGconn
from psycopg_pool import AsyncConnectionPool

from holdfast.store.postgres.connection import Connection, PostgresSession
from holdfast.store.postgres.pool import Pool, cut, give_back
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.settings import PostgresSettings

BorrowedConnection = psycopg.AsyncConnection[Row] | psycopg.Connection[Row]

_CLOSED = PGconn.connect_start(b"=")  # which nobody can connect to
_CLEAN = b"""
CLOSE ALL;
SET SESSION AUTHORIZATION DEFAULT;
RESET ALL;
UNLISTEN *;
DISCARD TEMP;
DISCARD SEQUENCES;
SELECT pg_advisory_unlock_all(), ARRAY(SELECT name FROM pg_prepared_statements)
"""
# DISCARD ALL, but for our statements: to prepare and plan them again takes the server 3 ms.


class HandlerPool:
    """The pool, opened when the first handler asks."""

    def __init__(self, database: Pool, settings: PostgresSettings) -> None:
        self._database = database
        self._settings = settings
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._places: asyncio.Semaphore

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[PostgresSession]:
        """Lend a connection; whoever asks waits for a free one as long as it takes.

        A server that cannot be reached is another matter: ``StoreUnavailableError``.
        """
        pool = await self._opened()
        async with self._places:
            connection = await self._database.taken_from(pool)
            try:
                yield self._database.wrapped(connection)
            finally:
                await give_back(pool, connection)

    async def _opened(self) -> AsyncConnectionPool[Connection]:
        if self._pool is None:
            reset = None if self._settings.pgbouncer else self._reset
            self._pool = self._database.guest_pool(reset)
            self._places = asyncio.Semaphore(self._settings.pool)  # of the loop that runs now
            await self._pool.open()
        return self._pool

    async def _reset(self, connection: Connection) -> None:
        session = self._database.wrapped(connection)
        ((_, names),) = await session.script(_CLEAN)
        ours = {known.name.decode() for known in connection.prepared.values()}
        if ours != set(names):
            await session.script(b"DEALLOCATE ALL")
            connection.prepared.clear()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None


@contextlib.contextmanager
def lent(line: Connection, *, blocking: bool) -> Iterator[BorrowedConnection]:
    """Make a handler's connection over our line; once the block is over it is a closed one."""
    connection = (
        psycopg.Connection(line.pgconn) if blocking else psycopg.AsyncConnection(line.pgconn)
    )
    connection._num_transactions = 1  # so that psycopg refuses commit() and rollback()
    if line.prepare_threshold is None:  # behind a pooler
        connection.prepare_threshold = None
    closed: Connection | BorrowedConnection = connection
    try:
        yield connection
    except asyncio.CancelledError:
        if blocking:  # its thread may be using it just now: we let go of it, and it leads nowhere
            cut(line)
            closed = line
        raise
    finally:
        closed.pgconn = _CLOSED
