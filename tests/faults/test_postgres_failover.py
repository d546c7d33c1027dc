"""Another server takes over, while the old one still answers but refuses writes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.errors import StoreUnavailableError
from holdfast.store import Claim
from holdfast.store.postgres import PostgresSettings, PostgresStore, listener
from tests.conformance.hand import make
from tests.proxy import Proxy
from tests.servers import Postgres
from tests.store.sessions import borrowed_session, state_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.postgres
SCHEMA = "failover"


@pytest.fixture(scope="module")
def new() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def old() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
async def proxy(old: Postgres, new: Postgres) -> AsyncIterator[Proxy]:
    """The address of the current primary."""
    for server in (old, new):
        async with PostgresStore(PostgresSettings(dsn=server.dsn, schema=SCHEMA)):
            pass
    async with Proxy(old.port) as proxy:
        yield proxy


@pytest.fixture
async def store(old: Postgres, proxy: Proxy) -> AsyncIterator[PostgresStore]:
    dsn = old.dsn.replace(f":{old.port}/", f":{proxy.port}/")
    async with PostgresStore(PostgresSettings(dsn=dsn, schema=SCHEMA, pool=6)) as store:
        yield store


async def _take_over(proxy: Proxy, old: Postgres, new: Postgres) -> None:
    async with await psycopg.AsyncConnection.connect(old.dsn, autocommit=True) as connection:
        await connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await connection.execute("SELECT pg_reload_conf()")

        async def is_read_only() -> bool:
            cursor = await connection.execute("SHOW default_transaction_read_only")
            return await cursor.fetchone() == ("on",)

        await eventually(is_read_only)
    proxy.lead_to(new.port)


@pytest.mark.req("S-9")
async def test_store_switches_to_the_new_primary(
    store: PostgresStore, proxy: Proxy, old: Postgres, new: Postgres
) -> None:
    async with borrowed_session(store), borrowed_session(store), borrowed_session(store):
        await asyncio.gather(*(store.get([str(n)]) for n in range(3)))  # opens six connections
    await _take_over(proxy, old, new)
    job = make("a", now=store.now())

    async def refused() -> None:
        while True:  # a backend may not have read the new setting yet
            await store.add([make("b", now=store.now())])

    with pytest.raises(StoreUnavailableError, match="read-only"):
        await asyncio.wait_for(refused(), 10)
    await store.add([job])

    async with PostgresStore(PostgresSettings(dsn=new.dsn, schema=SCHEMA)) as there:
        (found,) = await there.get([job.id])
    assert found is not None
    taken = await store.claim(Claim(queues=("default",), limit=10, worker="w", token="t"))
    assert job.id in [each.id for each in taken]


@pytest.mark.req("S-9")
async def test_listener_switches_to_the_new_primary(
    store: PostgresStore,
    proxy: Proxy,
    old: Postgres,
    new: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "PROBE_EVERY", 0.1)
    monkeypatch.setattr(listener, "RECONNECT_AFTER", 0.01)
    assert await state_of(store).wake.is_notified()

    await _take_over(proxy, old, new)

    async with PostgresStore(PostgresSettings(dsn=new.dsn, schema=SCHEMA)) as there:
        async with asyncio.timeout(20):
            await eventually(lambda: _listens(new))
            await state_of(store).wake.listening.wait()
        seen = await store.arrivals(["default"], -1, timedelta(0))
        await there.add([make("a", now=there.now())])
        assert seen != await store.arrivals(["default"], seen, timedelta(seconds=10))


async def _listens(server: Postgres) -> bool:
    query = f"SELECT 1 FROM pg_stat_activity WHERE query = 'LISTEN \"holdfast_{SCHEMA}\"'"
    async with await psycopg.AsyncConnection.connect(server.dsn) as connection:
        cursor = await connection.execute(query.encode())
        return await cursor.fetchone() is not None
