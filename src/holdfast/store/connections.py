"""Recognises connections of callers by class name, so that no driver is imported."""

from __future__ import annotations

from typing import Any

from holdfast.errors import Fault, ValidationError

_ASYNC = frozenset(
    {
        "psycopg.AsyncConnection",
        "asyncpg.Connection",
        "asyncpg.PoolConnectionProxy",
        "sqlalchemy.AsyncConnection",
        "sqlalchemy.AsyncSession",
    }
)


def kinds(connection: object) -> list[str]:
    """Return the names of its class and base classes, each as package.Class."""
    return [f"{c.__module__.partition('.')[0]}.{c.__name__}" for c in type(connection).__mro__]


def unwrapped(connection: Any) -> Any:
    """Return the connection behind a proxy of Django or SQLAlchemy, for this thread or task."""
    match kinds(connection)[0]:
        case "django.ConnectionProxy":
            return connection._connections[connection._alias]  # as the proxy does
        case "sqlalchemy.scoped_session" | "sqlalchemy.async_scoped_session":
            return connection()
    return connection


def blocking(connection: object) -> object:
    """Return the connection of a caller without an event loop; refuse an async one."""
    if connection is None:
        return None
    connection = unwrapped(connection)
    if not _ASYNC.isdisjoint(kinds(connection)):
        message = "must be a blocking one here; with an async one, await the submission"
        raise ValidationError([Fault("connection", "INVALID", message)])
    return connection
