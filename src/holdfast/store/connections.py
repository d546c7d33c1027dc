"""Connections that callers bring: what they are, told by name so that no driver is imported."""

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
    """Return its class and the bases of that, each as package.Class."""
    return [f"{c.__module__.partition('.')[0]}.{c.__name__}" for c in type(connection).__mro__]


def unwrapped(connection: Any) -> Any:
    """Return the connection that a proxy stands for, in the thread or task that asks."""
    match kinds(connection)[0]:
        case "django.ConnectionProxy":
            return connection._connections[connection._alias]  # as it does itself
        case "sqlalchemy.scoped_session" | "sqlalchemy.async_scoped_session":
            return connection()
    return connection


def blocking(connection: object) -> object:
    """Return what a caller without an event loop brought; refuse what only works in one."""
    connection = unwrapped(connection)
    if not _ASYNC.isdisjoint(kinds(connection)):
        told = "must be a blocking one here; with an async one, await the submission"
        raise ValidationError([Fault("connection", "INVALID", told)])
    return connection
