"""How many connections worker processes need: a server has a hundred by default."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast, State
from holdfast.store.postgres import PostgresSettings, PostgresStore
from tests.conformance.stores import empty_schema
from tests.servers import Postgres
from tests.store.sessions import state_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.store.postgres.connection import PostgresSession

pytestmark = pytest.mark.postgres
SCHEMA = "connections"
PROCESSES, PER_PROCESS, SUPERVISOR = 4, 3, 2
OTHERS = 3
"""Connections of this test: one that counts, and two of the store that submits."""
JOBS = 400
COUNT = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
SHOP = """
import asyncio
from holdfast import Holdfast

app = Holdfast()

@app.task("nap")
async def nap(n: int) -> int:
    await asyncio.sleep(0.01)
    return n
"""


@pytest.fixture
def small_server() -> Iterator[Postgres]:
    most = SUPERVISOR + PROCESSES * PER_PROCESS + OTHERS
    with Postgres([f"max_connections={most}", "superuser_reserved_connections=0"]) as server:
        yield server


@pytest.fixture
def worker(small_server: Postgres, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "shop.py").write_text(SHOP)
    options = ["--processes", str(PROCESSES), "--slots", "4"]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "shop:app", *options],
        env={**os.environ, "PYTHONPATH": path, "HOLDFAST_URL": small_server.dsn},
        stderr=subprocess.DEVNULL,
    ) as process:
        yield process
        process.terminate()


async def test_processes_run_in_three_connections_each(
    small_server: Postgres, worker: subprocess.Popen[bytes]
) -> None:
    async with Holdfast(small_server.dsn) as app:
        await app.submit_batch([{"type": "nap", "payload": {"n": n}} for n in range(JOBS)])

        async def completed() -> bool:
            return JOBS == sum(q.counts.get(State.COMPLETED, 0) for q in await app.queues())

        await eventually(completed, within=60, every=0.2)
        assert worker.poll() is None

    with psycopg.connect(small_server.dsn, autocommit=True) as connection:

        def is_quiet() -> bool:
            found = connection.execute(COUNT).fetchone()
            assert found is not None
            return int(found[0]) <= SUPERVISOR + PROCESSES * PER_PROCESS + 1

        await eventually(is_quiet, within=30, every=0.2)


async def test_calls_that_take_long_open_more_connections(postgres_server: Postgres) -> None:
    """A drain makes few calls, each with a thousand jobs."""
    empty_schema(postgres_server.dsn, SCHEMA)
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)

    async def slow(session: PostgresSession) -> None:
        await session.script(b"SELECT pg_sleep(0.05)")

    async with PostgresStore(settings) as store:
        pool = state_of(store).pool

        async def calls() -> float:
            begun = time.perf_counter()
            await asyncio.gather(*[pool.atomically(slow) for _ in range(4)])
            return time.perf_counter() - begun

        await calls()
        await calls()
        took = min([await calls() for _ in range(4)])

    assert took < 3 * 0.05  # one after the other they take four times as long


async def test_cancelled_call_leaves_the_connection_to_the_next(postgres_server: Postgres) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, pool=1)

    async def slow(session: PostgresSession) -> None:
        await session.script(b"SELECT pg_sleep(0.05)")

    async with PostgresStore(settings) as store:
        pool = state_of(store).pool
        for delay in (0.0, 0.01, 0.04, 0.05, 0.051, 0.06):
            first = asyncio.create_task(pool.atomically(slow))
            await asyncio.sleep(0)  # it takes the only connection
            second = asyncio.create_task(pool.atomically(slow))
            await asyncio.sleep(delay)  # the moments around the hand-over
            second.cancel()
            await asyncio.wait([first, second])

            assert [None] == await asyncio.wait_for(store.get(["x"]), 5)
