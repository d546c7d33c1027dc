"""Who hears of new work, and who needs not."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.store.postgres import PostgresStore, Settings
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "woken"
LISTENERS = f"SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN \"holdfast_{SCHEMA}\"'"


@pytest.fixture
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(Settings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        yield store


async def _listeners(dsn: str) -> int:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute(LISTENERS.encode())
        ((count,),) = await cursor.fetchall()
        return int(count)


async def test_only_who_waits_for_work_has_a_connection_that_listens(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    await store.add([make("a", now=store.now())])
    assert 0 == await _listeners(postgres_server.dsn)

    await store.arrivals(["default"], -1, timedelta(0))

    assert await store._wake.hears()
    assert 1 == await _listeners(postgres_server.dsn)


async def test_work_that_came_before_the_first_wait_could_listen_ends_it(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    settings = Settings(dsn=postgres_server.dsn, schema=SCHEMA)
    async with PostgresStore(settings) as other:
        await other.add([make("a", now=other.now())])

        assert 0 != await store.arrivals(["default"], 0, timedelta(seconds=10))
