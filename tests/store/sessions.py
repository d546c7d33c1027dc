"""The inside of a PostgreSQL store, for tests that query the server over its connections."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.store.postgres import PostgresStore
    from holdfast.store.postgres.connection import PostgresSession
    from holdfast.store.postgres.state import StoreState


def state_of(store: PostgresStore) -> StoreState:
    """Return the parts of a store: its pool, its listener, its positions."""
    return store._state  # the store itself offers verbs only


@asynccontextmanager
async def borrowed_session(store: PostgresStore) -> AsyncIterator[PostgresSession]:
    """Borrow a session, as every call does."""
    pool = state_of(store).pool
    session = await pool.borrow()
    try:
        yield session
    finally:
        await pool._pool.putconn(session.connection)  # as at the end of every call
