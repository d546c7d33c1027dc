"""Which stores are notified of new work, and how failures are reported."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.store import Finding, Level
from holdfast.store.postgres import PostgresSettings, PostgresStore, wake
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.store.sessions import state_of
from tests.worker.rig import EventLog, working

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "wake"
LISTENERS = f"""
SELECT count(*) FROM pg_stat_activity
WHERE query = 'LISTEN "holdfast_{SCHEMA}"' OR query LIKE 'SELECT pg_try_advisory%"{SCHEMA}"%'
"""


@pytest.fixture
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        yield store


async def _listeners(dsn: str) -> int:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute(LISTENERS.encode())
        ((count,),) = await cursor.fetchall()
        return int(count)


async def test_only_a_store_that_waits_for_work_listens(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    await store.add([make("a", now=store.now())])
    assert 0 == await _listeners(postgres_server.dsn)

    await store.arrivals(["default"], -1, timedelta(0))

    assert await state_of(store).wake.is_notified()
    assert 1 == await _listeners(postgres_server.dsn)


async def test_work_added_before_the_listener_connects_ends_the_first_wait(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)
    async with PostgresStore(settings) as other:
        await other.add([make("a", now=other.now())])

        assert 0 != await store.arrivals(["default"], 0, timedelta(seconds=10))


async def _wake_finding(dsn: str, listen_url: str) -> Finding:
    settings = PostgresSettings(dsn=dsn, schema=SCHEMA, listen_url=listen_url)
    async with PostgresStore(settings) as store:
        return {finding.name: finding for finding in await store.findings()}["wake"]


async def test_doctor_reports_why_listening_fails(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "LISTEN_WITHIN", 1.0)
    dsn = postgres_server.dsn

    dead = await _wake_finding(dsn, "postgresql://postgres@127.0.0.1:1/postgres")
    wrong = await _wake_finding(dsn, f"{dsn}_of_nobody")
    elsewhere = await _wake_finding(dsn, dsn.removesuffix("/postgres") + "/template1")
    sound = await _wake_finding(dsn, dsn)

    assert Level.WARN is dead.level is wrong.level is elsewhere.level
    assert "notices sent here do not arrive there" in elsewhere.text
    assert Level.OK is sound.level
    assert "Listening for NOTIFY fails: PostgreSQL: " in dead.text
    assert "refused" in dead.text
    assert 'database "postgres_of_nobody" does not exist' in wrong.text
    assert "listen_url" in dead.advice


async def test_notice_from_a_session_with_the_listeners_pid_is_received(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    """The pid of a backend that ended may be given to another one."""
    assert await state_of(store).wake.is_notified()
    seen = await store.arrivals(["default"], -1, timedelta(0))

    async with await psycopg.AsyncConnection.connect(
        postgres_server.dsn, autocommit=True
    ) as connection:
        cursor = await connection.execute(LISTENERS.replace("count(*)", "pid").encode())
        ((number,),) = await cursor.fetchall()
        await connection.execute(f"NOTIFY holdfast_{SCHEMA}, '{number} default'".encode())

    assert seen != await store.arrivals(["default"], seen, timedelta(seconds=10))


async def test_own_notice_is_not_counted_twice(store: PostgresStore) -> None:
    async with PostgresStore(store.settings) as other:
        assert await state_of(store).wake.is_notified()
        seen = await store.arrivals(["default", "other"], -1, timedelta(0))
        before = await store.arrivals(["other"], -1, timedelta(0))

        await store.add([make("a", now=store.now())])
        await other.add([make("b", now=other.now(), queue="other")])  # most likely received later
        assert before != await store.arrivals(["other"], before, timedelta(seconds=10))

    assert seen + 2 == await store.arrivals(["default", "other"], -1, timedelta(0))


@pytest.mark.parametrize("cannot_listen", [True, False])
async def test_worker_logs_once_that_it_is_not_notified(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, cannot_listen: bool
) -> None:
    monkeypatch.setattr("holdfast.worker.announcer.FOLLOWED_EVERY", 0.1)
    port = 1 if cannot_listen else urlsplit(postgres_server.dsn).port
    listen_url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    app = Holdfast(f"{postgres_server.dsn}?schema={SCHEMA}&listen_url={listen_url}")

    async with working(app, observer=(events := EventLog())):
        if cannot_listen:
            await events.wait_for("store.not_notified")
        await asyncio.sleep(1)  # a second notice would come within it

    reported = ["refused" in str(line["error"]) for line in events.all("store.not_notified")]
    assert ([True] if cannot_listen else []) == reported
