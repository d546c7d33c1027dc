"""One of a store's own connections, for a test that asks the server something itself."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.store.postgres import PostgresStore
    from holdfast.store.postgres.connection import PostgresSession


@asynccontextmanager
async def lent(store: PostgresStore) -> AsyncIterator[PostgresSession]:
    """Borrow a connection, as every call does."""
    database = store._state.pool
    session = await database.borrow()
    try:
        yield session
    finally:
        await database._pool.putconn(session.connection)
