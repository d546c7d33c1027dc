"""Care for Django's database connections around every attempt, as Django does around requests.

A connection that the server closed between two jobs is replaced, so that no job fails for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections, reset_queries

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
    for connection in connections.all(initialized_only=True):
        connection.close_if_unusable_or_obsolete()
        is_open = connection.connection is not None and not connection.in_atomic_block
        if is_open and not connection.is_usable():
            connection.close()


def close_old() -> None:
    """Close the connections of this thread that are too old or that failed."""
    for connection in connections.all(initialized_only=True):
        connection.close_if_unusable_or_obsolete()


class ConnectionCare(Middleware):
    """Middleware that gives every attempt usable connections, wherever its handler runs."""

    def attempt(self, call: AttemptCall) -> AttemptManager:
        """Return the care for the handler's own thread or task."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return fresh_connections()
        return fresh_async_connections()
