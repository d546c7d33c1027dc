"""Every kind of connection on which a caller may have an open transaction."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class RolledBack(Exception):
    """Raised by a caller to roll back its transaction."""


@asynccontextmanager
async def psycopg_async(dsn: str) -> AsyncIterator[object]:
    async with (
        await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def psycopg_sync(dsn: str) -> AsyncIterator[object]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def asyncpg_connection(dsn: str) -> AsyncIterator[object]:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool(dsn: str) -> AsyncIterator[object]:
    async with (
        asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


def sqlalchemy_sync(driver: str, use: Callable[..., object]) -> Callable[[str], object]:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[object]:
        engine = create_engine(dsn.replace("postgresql:", f"postgresql+{driver}:"))
        try:
            with use(engine) as connection, connection.begin():
                yield connection
        finally:
            engine.dispose()

    return opened


def sqlalchemy_async(driver: str, use: Callable[..., object]) -> Callable[[str], object]:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[object]:
        engine = create_async_engine(dsn.replace("postgresql:", f"postgresql+{driver}:"))
        try:
            async with use(engine) as connection, connection.begin():
                yield connection
        finally:
            await engine.dispose()

    return opened


@asynccontextmanager
async def scoped(dsn: str) -> AsyncIterator[object]:
    """The kind of session that Flask-SQLAlchemy has as db.session."""
    engine = create_engine(dsn.replace("postgresql:", "postgresql+psycopg:"))
    session = scoped_session(sessionmaker(engine))
    try:
        with session.begin():
            yield session
    finally:
        session.remove()
        engine.dispose()


@asynccontextmanager
async def async_scoped(dsn: str) -> AsyncIterator[object]:
    engine = create_async_engine(dsn.replace("postgresql:", "postgresql+asyncpg:"))
    session = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
    try:
        async with session.begin():
            yield session
    finally:
        await session.remove()
        await engine.dispose()


@asynccontextmanager
async def django(dsn: str) -> AsyncIterator[object]:
    from django.db import transaction
    from django.db.utils import ConnectionHandler

    import tests.contrib.django  # noqa: F401  # sets Django up

    info = psycopg.conninfo.conninfo_to_dict(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": info["dbname"],
        "USER": info["user"],
        "HOST": info["host"],
        "PORT": info["port"],
    }
    inside, outcome = asyncio.Event(), asyncio.Event()
    failure: list[BaseException] = []
    loop = asyncio.get_running_loop()
    found: list[object] = []

    def request() -> None:
        """Run a view: Django's connections belong to one thread without an event loop."""
        connection = ConnectionHandler({"default": database})["default"]
        found.append(connection)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(transaction, "get_connection", lambda using=None: connection)
                with transaction.atomic():
                    connection.ensure_connection()
                    loop.call_soon_threadsafe(inside.set)
                    asyncio.run_coroutine_threadsafe(outcome.wait(), loop).result(30)
                    if failure:
                        raise failure[0]
        finally:
            connection.close()

    view = asyncio.create_task(asyncio.to_thread(request))
    await inside.wait()
    try:
        yield found[0]
    except RolledBack as error:
        failure.append(error)
    finally:
        outcome.set()
    await view


CALLERS = {
    "psycopg async": psycopg_async,
    "psycopg sync": psycopg_sync,
    "asyncpg": asyncpg_connection,
    "asyncpg pool": asyncpg_pool,
    "SQLAlchemy connection": sqlalchemy_sync("psycopg", lambda engine: engine.connect()),
    "SQLAlchemy session": sqlalchemy_sync("psycopg", Session),
    "SQLAlchemy async connection": sqlalchemy_async("psycopg", lambda engine: engine.connect()),
    "SQLAlchemy async session": sqlalchemy_async("psycopg", AsyncSession),
    "SQLAlchemy async connection on asyncpg": sqlalchemy_async(
        "asyncpg", lambda engine: engine.connect()
    ),
    "SQLAlchemy async session on asyncpg": sqlalchemy_async("asyncpg", AsyncSession),
    "SQLAlchemy scoped session": scoped,
    "SQLAlchemy async scoped session": async_scoped,
    "Django": django,
}
BLOCKING_DRIVERS = ["psycopg", *(["psycopg2"] if find_spec("psycopg2") else [])]
CALLERS |= {
    f"SQLAlchemy session on {driver}": sqlalchemy_sync(driver, Session)
    for driver in BLOCKING_DRIVERS[1:]
}
