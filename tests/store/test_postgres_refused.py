"""Connections on which no job can be submitted, and the errors they raise."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast.errors import StoreError
from holdfast.runtime.clock import SystemClock
from holdfast.store.postgres import PostgresSettings, PostgresStore
from tests.conformance.hand import Hand
from tests.conformance.stores import empty_schema
from tests.servers import Postgres
from tests.store.callers import CALLERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.postgres
SCHEMA = "refused"


@pytest.fixture
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        yield store


@pytest.fixture
def hand(store: PostgresStore) -> Hand:
    return Hand(store, SystemClock())


@asynccontextmanager
async def psycopg_autocommit(dsn: str) -> AsyncIterator[object]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def psycopg_sync_autocommit(dsn: str) -> AsyncIterator[object]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def asyncpg_bare(dsn: str) -> AsyncIterator[object]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def sqlalchemy_autocommit(dsn: str) -> AsyncIterator[object]:
    engine = create_engine(dsn.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield connection
    finally:
        engine.dispose()


def sqlalchemy_async_autocommit(driver: str) -> Callable[[str], object]:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[object]:
        engine = create_async_engine(
            dsn.replace("postgresql:", f"postgresql+{driver}:"), isolation_level="AUTOCOMMIT"
        )
        try:
            async with engine.connect() as connection:
                yield connection
        finally:
            await engine.dispose()

    return opened


@pytest.mark.parametrize(
    "opened",
    [
        psycopg_autocommit,
        psycopg_sync_autocommit,
        asyncpg_bare,
        sqlalchemy_autocommit,
        sqlalchemy_async_autocommit("psycopg"),
        sqlalchemy_async_autocommit("asyncpg"),
    ],
)
async def test_connection_in_autocommit_mode_is_refused(
    opened: Callable[[str], AbstractAsyncContextManager[object]],
    store: PostgresStore,
    hand: Hand,
    postgres_server: Postgres,
) -> None:
    job = hand.job("a", idempotency_key="k")
    async with opened(postgres_server.dsn) as connection:
        with pytest.raises(StoreError, match="connection must be in a transaction"):
            await store.add([job], connection=connection)

    assert [None] == await store.get([job.id])


async def test_transaction_begun_with_a_statement_is_accepted(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    job = hand.job("a")
    async with await psycopg.AsyncConnection.connect(
        postgres_server.dsn, autocommit=True
    ) as connection:
        await connection.execute("BEGIN")
        await store.add([job], connection=connection)
        assert [None] == await store.get([job.id])
        await connection.execute("COMMIT")

    assert [job.id] == [stored and stored.id for stored in await store.get([job.id])]


@pytest.fixture
async def elsewhere(postgres_server: Postgres) -> AsyncIterator[str]:
    """Another database of the same server."""
    name = "elsewhere"
    async with await psycopg.AsyncConnection.connect(
        postgres_server.dsn, autocommit=True
    ) as connection:
        await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await connection.execute(f"CREATE DATABASE {name}")
        yield psycopg.conninfo.make_conninfo(postgres_server.dsn, dbname=name)
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_connection_to_a_database_of_the_same_name_elsewhere_is_refused(
    store: PostgresStore, hand: Hand
) -> None:
    with Postgres() as other:
        async with PostgresStore(PostgresSettings(dsn=other.dsn, schema=SCHEMA)):
            pass
        async with await psycopg.AsyncConnection.connect(other.dsn) as connection:
            with pytest.raises(StoreError, match="connection leads to another server"):
                await store.add([hand.job("a")], connection=connection)


async def test_connection_to_another_database_is_refused(
    store: PostgresStore, hand: Hand, elsewhere: str
) -> None:
    async with await psycopg.AsyncConnection.connect(elsewhere) as connection:
        with pytest.raises(StoreError, match="leads to the database 'elsewhere', the store is in"):
            await store.add([hand.job("a")], connection=connection)


@pytest.mark.parametrize("caller", ["psycopg sync", "asyncpg", "SQLAlchemy session"])
async def test_database_without_the_schema_is_refused(
    caller: str, store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    async def submit() -> None:
        async with CALLERS[caller](postgres_server.dsn) as connection:
            await store.lineage([hand.job("a").id], connection)

    with psycopg.connect(postgres_server.dsn) as connection:
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())
    with pytest.raises(StoreError, match="in which holdfast has no schema 'refused'"):
        await submit()


async def test_errors_of_sqlalchemy_show_no_payload(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    job = hand.job("a", payload={"secret": "sesame"}, tags={"a": "b"})

    async def submit() -> None:
        async with CALLERS["SQLAlchemy session"](postgres_server.dsn) as session:
            assert isinstance(session, Session)
            session.execute(text("SET TRANSACTION READ ONLY"))
            await store.add([job], connection=session)

    with pytest.raises(DBAPIError) as raised:
        await submit()
    assert "sesame" not in str(raised.value)


async def test_sync_session_of_an_async_session_is_refused(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    async with CALLERS["SQLAlchemy async session"](postgres_server.dsn) as session:
        assert isinstance(session, AsyncSession)
        await session.connection()
        with pytest.raises(StoreError, match="must be the async connection or session itself"):
            await store.add([hand.job("a")], connection=session.sync_session)


async def test_connection_in_another_encoding_is_refused(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    async with await psycopg.AsyncConnection.connect(
        postgres_server.dsn, client_encoding="SQL_ASCII"
    ) as connection:
        with pytest.raises(StoreError, match="must have the client encoding UTF8"):
            await store.add([hand.job("a")], connection=connection)
