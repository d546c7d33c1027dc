"""Writing jobs on the caller's own connection, inside the caller's own transaction.

The jobs exist if and only if that transaction commits, and workers are woken when it does.
Errors of the caller's driver pass through as they are: the transaction is the caller's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from psycopg.rows import tuple_row

from holdfast.errors import StoreError
from holdfast.store.postgres import arrays
from holdfast.store.postgres.arrays import Column, Documents
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.session import Params, Statements
from holdfast.store.postgres.sql import Statement, statement

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

_NUMBERED = re.compile(r"\$(\d+)")


def enlist(connection: object, schema: str) -> Statements:
    """Return what runs our statements on a connection or session of the caller's.

    Takes psycopg connections (sync and async), asyncpg connections, SQLAlchemy connections and
    sessions (sync and async, on psycopg or asyncpg) and Django's connections.
    """
    for name in _names(connection):
        if name in _ADAPTERS:
            return _ADAPTERS[name](connection, schema)
    raise StoreError(
        f"connection must be from psycopg, asyncpg, SQLAlchemy or Django, got {type(connection)}"
    )


def _names(connection: object) -> list[str]:
    """The class and its bases as package.Class, so that no driver needs to be imported."""
    return [f"{c.__module__.partition('.')[0]}.{c.__name__}" for c in type(connection).__mro__]


class _Psycopg:
    """Cursors of our own: the caller's may bind parameters or make rows in other ways."""

    def __init__(self, connection: psycopg.Connection[Row], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    async def run(self, name: str, params: Params) -> list[Row]:
        return await asyncio.to_thread(self._execute, statement(name, self._schema), params)

    def _execute(self, sql: Statement, params: Params) -> list[Row]:
        with psycopg.RawCursor(self._connection, row_factory=tuple_row) as cursor:
            arrays.register(cursor.adapters)
            cursor.execute(sql.sent, [params[name] for name in sql.names])
            return cursor.fetchall() if cursor.description else []


class _AsyncPsycopg:
    def __init__(self, connection: psycopg.AsyncConnection[Row], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    async def run(self, name: str, params: Params) -> list[Row]:
        sql = statement(name, self._schema)
        async with psycopg.AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            arrays.register(cursor.adapters)
            await cursor.execute(sql.sent, [params[name] for name in sql.names])
            return await cursor.fetchall() if cursor.description else []


class _Fetching(Protocol):
    async def fetch(self, query: str, *args: object) -> Sequence[Sequence[object]]: ...


class _Asyncpg:
    def __init__(self, connection: _Fetching, schema: str) -> None:
        self._connection = connection
        self._schema = schema

    async def run(self, name: str, params: Params) -> list[Row]:
        sql = statement(name, self._schema)
        values = [plain(params[name]) for name in sql.names]
        return [tuple(row) for row in await self._connection.fetch(sql.text, *values)]


class _SQLAlchemy:
    """A connection or session."""

    def __init__(self, given: Connection | Session, schema: str) -> None:
        self._given = given
        self._schema = schema

    async def run(self, name: str, params: Params) -> list[Row]:
        return await asyncio.to_thread(self._execute, statement(name, self._schema), params)

    def _execute(self, sql: Statement, params: Params) -> list[Row]:
        from sqlalchemy.orm import Session

        given = self._given
        connection = given.connection() if isinstance(given, Session) else given
        return _rows(
            connection.exec_driver_sql(*_for_driver(connection.dialect.driver, sql, params))
        )


class _AsyncSQLAlchemy:
    """An async connection or session."""

    def __init__(self, given: AsyncConnection | AsyncSession, schema: str) -> None:
        self._given = given
        self._schema = schema

    async def run(self, name: str, params: Params) -> list[Row]:
        from sqlalchemy.ext.asyncio import AsyncSession

        given = self._given
        connection = await given.connection() if isinstance(given, AsyncSession) else given
        sql = statement(name, self._schema)
        call = _for_driver(connection.dialect.driver, sql, params)
        return _rows(await connection.exec_driver_sql(*call))


def _rows(result: CursorResult[tuple[object, ...]]) -> list[Row]:
    return [tuple(row) for row in result] if result.returns_rows else []


def _for_driver(
    driver: str, sql: Statement, params: Params
) -> tuple[str, tuple[object, ...] | dict[str, object]]:
    values = {name: plain(params[name]) for name in sql.names}
    if driver == "asyncpg":
        return sql.text, tuple(values.values())
    return _NUMBERED.sub(lambda n: f"%({sql.names[int(n[1]) - 1]})s", sql.text), values


class _Django(Protocol):
    connection: object
    in_atomic_block: bool


def _django(wrapper: _Django, schema: str) -> Statements:
    """Django's wrapper belongs to one thread; the psycopg connection below it does not."""
    if wrapper.connection is None or not wrapper.in_atomic_block:
        raise StoreError("connection must be inside transaction.atomic()")
    return enlist(wrapper.connection, schema)


def plain(value: object) -> object:
    """A parameter as any driver takes it: columns as lists, documents as text."""
    if isinstance(value, Documents):
        return [None if v is None else v.decode() for v in value.values]
    if isinstance(value, arrays.Texts):
        return [None if v is None else arrays.text(v).decode() for v in value.values]
    if isinstance(value, str):
        return arrays.text(value).decode()
    return list(value.values) if isinstance(value, Column) else value


_ADAPTERS: Mapping[str, Callable[[Any, str], Statements]] = {
    "psycopg.Connection": _Psycopg,
    "psycopg.AsyncConnection": _AsyncPsycopg,
    "asyncpg.Connection": _Asyncpg,
    "asyncpg.PoolConnectionProxy": _Asyncpg,
    "sqlalchemy.Connection": _SQLAlchemy,
    "sqlalchemy.Session": _SQLAlchemy,
    "sqlalchemy.AsyncConnection": _AsyncSQLAlchemy,
    "sqlalchemy.AsyncSession": _AsyncSQLAlchemy,
    "django.BaseDatabaseWrapper": _django,
}
