"""How many connections worker processes need: a server has a hundred by default."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast, State
from tests.servers import Postgres
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.postgres
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
