"""A session of a store's own pool, for tests that query the server directly."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.store.postgres import PostgresStore
    from holdfast.store.postgres.connection import PostgresSession


@asynccontextmanager
async def borrowed_session(store: PostgresStore) -> AsyncIterator[PostgresSession]:
    """Borrow a session, as every call does."""
    pool = store._state.pool
    session = await pool.borrow()
    try:
        yield session
    finally:
        await pool._pool.putconn(session.connection)
