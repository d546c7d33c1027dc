"""Care for Django's database connections around every attempt, as Django does around requests.

A connection that the server closed between two jobs is replaced, so that no job fails for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper

from holdfast.tasks.middleware import AttemptCall, AttemptManager, Middleware


@contextlib.contextmanager
def fresh_connections() -> Iterator[None]:
    """Replace unusable connections of this thread before a block, and old ones after it."""
    reset_queries()
    replace_unusable()
    try:
        yield
    finally:
        close_old()


@contextlib.asynccontextmanager
async def fresh_async_connections() -> AsyncIterator[None]:
    """Give a coroutine a thread of its own for its blocking calls, as Django gives a request.

    The connections of that thread are closed with it. A coroutine that makes no such call costs
    nothing.
    """
    async with ThreadSensitiveContext() as own:
        try:
            yield
        finally:
            if own in SyncToAsync.context_to_thread_executor:
                await sync_to_async(connections.close_all)()


def replace_unusable() -> None:
    """Close the connections of this thread that are too old or that the server closed.

    Django itself asks the server only with CONN_HEALTH_CHECKS, or after an error.
    """
    for connection in _between_transactions():
        connection.close_if_unusable_or_obsolete()
        if connection.connection is not None and not connection.is_usable():
            connection.close()


def close_old() -> None:
    """Close the connections of this thread that are too old or that failed."""
    for connection in _between_transactions():
        connection.close_if_unusable_or_obsolete()


def _between_transactions() -> list[BaseDatabaseWrapper]:
    """Return the connections of this thread that may be closed.

    A test case holds a transaction open around its jobs. Django would close that connection,
    because it does not commit by itself.
    """
    opened = connections.all(initialized_only=True)
    return [connection for connection in opened if not connection.in_atomic_block]


def close_before_destroying(alias: str, close: Callable[[], None]) -> None:
    """Call ``close`` before a test run destroys its database of this name.

    PostgreSQL destroys no database while somebody is connected to it. Django sends no signal.
    """
    creation = connections[alias].creation
    destroy = creation.destroy_test_db

    def destroy_test_db(*arguments: Any, **named: Any) -> None:
        close()
        destroy(*arguments, **named)

    creation.destroy_test_db = destroy_test_db


class ConnectionCare(Middleware):
    """Middleware that gives every attempt usable connections, wherever its handler runs."""

    def attempt(self, call: AttemptCall) -> AttemptManager:
        """Return the care for the handler's own thread or task."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return fresh_connections()
        return fresh_async_connections()
