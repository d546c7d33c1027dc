"""The caller's own connection, on which jobs are added inside the caller's transaction.

The jobs exist if and only if that transaction commits, which also wakes workers. Errors of the
caller's driver are raised unchanged: the transaction is the caller's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.errors import StoreError
from holdfast.model.job import Job
from holdfast.model.submission import Parent
from holdfast.store.connections import kinds, unwrapped
from holdfast.store.postgres import arrays
from holdfast.store.postgres.arrays import Column, Documents
from holdfast.store.postgres.connection import Params, StatementRunner
from holdfast.store.postgres.links import parent_rows
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.state import StoreState
from holdfast.store.postgres.statements import Statement, statement
from holdfast.store.postgres.wake import arrivals_in

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult
    from sqlalchemy.engine.interfaces import CoreExecuteOptionsParameter
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

_NUMBERED = re.compile(r"\$(\d+)")
_NO_SCHEMA, _NO_TABLE = "3F000", "42P01"


async def lineage(state: StoreState, ids: Sequence[str], connection: object) -> dict[str, Parent]:
    """Return what new jobs inherit from their dependencies; see ``TransactionalStore``."""
    rows = await parent_rows(caller_session(connection, state.settings.schema), ids)
    return {id_: Parent(priority, depth) for id_, _, _, priority, depth, _ in rows}


async def notify_on_commit(
    state: StoreState, session: StatementRunner, jobs: Sequence[Job]
) -> None:
    """Wake workers once the caller's transaction commits; refuse a connection elsewhere."""
    notice = state.wake.notice(arrivals_in(jobs))
    for _, *server in await session.run("notify_on_commit", notice):
        if isinstance(server[0], bytes):
            raise StoreError("connection must have the client encoding UTF8")
        if server != state.server:
            await state.check_clock()  # another server may have taken over
        if server[0] != state.server[0]:
            raise StoreError(
                f"connection leads to the database {server[0]!r}, the store is in"
                f" {state.server[0]!r}"
            )
        if server != state.server:
            raise StoreError("connection leads to another server than that of the store")


def caller_session(connection: object, schema: str) -> StatementRunner:
    """Return a session that runs the store's statements on a connection of the caller's.

    Accepts psycopg connections (sync and async), asyncpg connections, SQLAlchemy connections and
    sessions (sync and async, on psycopg, psycopg2 or asyncpg, also scoped ones) and Django's
    connections. It must be in a transaction, or begin one with the first statement.
    """
    given = unwrapped(connection)
    for kind in kinds(given):
        if kind in _ADAPTERS:
            return CallerSession(_ADAPTERS[kind](given), schema)
    raise StoreError(
        "connection must be a connection of psycopg 3 or asyncpg, a connection or session of"
        f" SQLAlchemy, or Django's, got {type(connection)}"
    )


class _Driver(Protocol):
    """Runs a statement on one kind of connection."""

    async def run(self, sql: Statement, params: Params) -> list[Row]: ...


class CallerSession:
    """Runs statements on the caller's connection, of whichever driver."""

    def __init__(self, driver: _Driver, schema: str) -> None:
        self._driver = driver
        self._schema = schema

    async def run(self, name: str, params: Params) -> list[Row]:
        try:
            return await self._driver.run(statement(name, self._schema), params)
        except Exception as error:
            cause = getattr(error, "orig", error)
            if getattr(cause, "sqlstate", "") in (_NO_SCHEMA, _NO_TABLE):
                raise StoreError(
                    "connection leads to a database in which holdfast has no schema"
                    f" {self._schema!r}"
                ) from error
            if hasattr(error, "hide_parameters"):  # SQLAlchemy shows payloads otherwise
                error.hide_parameters = True
            raise


def _refuse_autocommit(*, is_on: bool) -> None:
    if is_on:
        raise StoreError("connection must be in a transaction, but this one is in autocommit mode")


class _Psycopg:
    """Uses cursors of its own: the caller's may bind parameters or make rows in other ways."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        _refuse_autocommit(is_on=_is_psycopg_autocommit(connection))
        self._connection = connection

    async def run(self, sql: Statement, params: Params) -> list[Row]:
        return await asyncio.to_thread(self._execute, sql, params)

    def _execute(self, sql: Statement, params: Params) -> list[Row]:
        with psycopg.RawCursor(self._connection, row_factory=tuple_row) as cursor:
            arrays.register(cursor.adapters)
            cursor.execute(sql.sent, [params[name] for name in sql.names])
            return cursor.fetchall() if cursor.description else []


class _AsyncPsycopg:
    def __init__(self, connection: psycopg.AsyncConnection[Row]) -> None:
        _refuse_autocommit(is_on=_is_psycopg_autocommit(connection))
        self._connection = connection

    async def run(self, sql: Statement, params: Params) -> list[Row]:
        async with psycopg.AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            arrays.register(cursor.adapters)
            await cursor.execute(sql.sent, [params[name] for name in sql.names])
            return await cursor.fetchall() if cursor.description else []


def _is_psycopg_autocommit(
    connection: psycopg.Connection[Row] | psycopg.AsyncConnection[Row],
) -> bool:
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE


class _AsyncpgConnection(Protocol):
    def is_in_transaction(self) -> bool: ...

    async def fetch(self, query: str, *args: object) -> Sequence[Sequence[object]]: ...


class _Asyncpg:
    def __init__(self, connection: _AsyncpgConnection) -> None:
        _refuse_autocommit(is_on=not connection.is_in_transaction())
        self._connection = connection

    async def run(self, sql: Statement, params: Params) -> list[Row]:
        values = [plain(params[name]) for name in sql.names]
        return [tuple(row) for row in await self._connection.fetch(sql.text, *values)]


class _SQLAlchemy:
    """A connection or session."""

    def __init__(self, given: Connection | Session) -> None:
        self._given = given

    async def run(self, sql: Statement, params: Params) -> list[Row]:
        return await asyncio.to_thread(self._execute, sql, params)

    def _execute(self, sql: Statement, params: Params) -> list[Row]:
        from sqlalchemy.orm import Session

        given = self._given
        connection = given.connection() if isinstance(given, Session) else given
        if connection.dialect.is_async:
            raise StoreError("connection must be the async connection or session itself")
        _refuse_autocommit(is_on=_is_autocommit(connection))
        call = _for_driver(connection.dialect.driver, sql, params)
        return _rows(connection.exec_driver_sql(*call, execution_options=_FETCH_ALL))


class _AsyncSQLAlchemy:
    """An async connection or session."""

    def __init__(self, given: AsyncConnection | AsyncSession) -> None:
        self._given = given

    async def run(self, sql: Statement, params: Params) -> list[Row]:
        from sqlalchemy.ext.asyncio import AsyncSession

        given = self._given
        connection = await given.connection() if isinstance(given, AsyncSession) else given
        if connection.sync_connection is not None:
            _refuse_autocommit(is_on=_is_autocommit(connection.sync_connection))
        call = _for_driver(connection.dialect.driver, sql, params)
        return _rows(await connection.exec_driver_sql(*call, execution_options=_FETCH_ALL))


_FETCH_ALL: CoreExecuteOptionsParameter = {"stream_results": False, "yield_per": None}
"""A connection that streams the caller's rows would declare cursors for the store's, too."""


def _is_autocommit(connection: Connection) -> bool:
    return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))


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
    connection: psycopg.Connection[Row] | None
    in_atomic_block: bool
    needs_rollback: bool


def _django(wrapper: _Django) -> _Driver:
    """Use the psycopg connection below Django's wrapper, which belongs to one thread."""
    if wrapper.connection is None or not wrapper.in_atomic_block:
        raise StoreError("connection must be inside transaction.atomic()")
    if wrapper.needs_rollback:
        raise StoreError("connection is in a transaction that Django will roll back")
    for kind in kinds(wrapper.connection):
        if kind == "psycopg.Connection":
            return _Psycopg(wrapper.connection)
    raise StoreError(f"connection must use psycopg, got {type(wrapper.connection)}")


def plain(value: object) -> object:
    """Return a parameter in a form for any driver: columns as lists, documents as text."""
    if isinstance(value, Documents):
        return [None if v is None else v.decode() for v in value.values]
    if isinstance(value, arrays.Texts):
        return [None if v is None else arrays.text(v).decode() for v in value.values]
    if isinstance(value, str):
        return arrays.text(value).decode()
    return list(value.values) if isinstance(value, Column) else value


_ADAPTERS: Mapping[str, Callable[[Any], _Driver]] = {
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
