"""Effects in the job's own transaction happen exactly once, even if workers are killed."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.model import lifecycle
from holdfast.model.job import Event
from holdfast.store import Change, Search
from holdfast.store.postgres import PostgresStore
from tests.architecture import tree
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.faults.counting import COUNTERS, TYPE

if TYPE_CHECKING:
    from holdfast.model.job import Job
    from tests.servers import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SCHEMA = "exactly_once"
JOBS = 5_000
WORKERS = 3
LEAST_KILLS = 12
_NO_TIME = timedelta(0)


def _start(url: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(tree.ROOT / "src"), str(tree.ROOT)])
    command = [sys.executable, "-m", "tests.faults.counting"]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, "HOLDFAST_URL": url})


def _job(store: PostgresStore, n: int) -> Job:
    payload = {"counter": n % COUNTERS}
    fields = {"type": TYPE, "payload": payload, "lease": 3.0, "max_attempts": 100}
    return make(str(n), now=store.now(), **fields)


async def _reap(store: PostgresStore, randomness: random.Random) -> None:
    now = store.now()
    orphans = await store.overdue(100)
    await store.swap(
        [
            Change(
                job,
                lifecycle.lease_lost(job, now=now, jitter=randomness.uniform(-1, 1)),
                until=job.lease.until if job.lease else None,
            )
            for job in orphans
        ]
    )
    await store.promote(1000)


async def _left(store: PostgresStore) -> int:
    stored = (await store.find(Search(limit=1))).total
    done = sum(t.count for t in (await store.stats(_NO_TIME)).tallies if t.state == "COMPLETED")
    return stored - done


@pytest.mark.timeout(300)
@pytest.mark.req("S-1", "S-5", "S-6")
async def test_counter_incremented_by_killed_workers_is_exact(postgres_server: Postgres) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS counted")
        connection.execute(
            "CREATE TABLE counted AS SELECT counter, 0 AS n"
            f" FROM generate_series(0, {COUNTERS - 1}) AS counter"
        )
        url = f"{postgres_server.dsn}?schema={SCHEMA}"
        randomness = random.Random(1)
        kills = 0
        async with PostgresStore.from_url(url) as store:
            jobs = [_job(store, n) for n in range(JOBS)]
            for start in range(0, JOBS, 1000):
                await store.add(jobs[start : start + 1000])
            workers = [_start(url) for _ in range(WORKERS)]
            try:
                until = time.monotonic() + 240
                while (left := await _left(store)) and time.monotonic() < until:
                    # The pace of the kills: at no fixed step of the work.
                    await asyncio.sleep(randomness.uniform(0.01, 0.1))
                    if JOBS - left > (kills + 1) * JOBS / (LEAST_KILLS + 2):
                        victim = randomness.randrange(WORKERS)
                        workers[victim].kill()
                        workers[victim].wait()
                        workers[victim] = _start(url)
                        kills += 1
                    await _reap(store, randomness)
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
            histories = await store.history([job.id for job in jobs])
            assert 0 == await _left(store)

        (counted,) = connection.execute("SELECT sum(n) FROM counted").fetchone() or (None,)
    assert JOBS == counted
    assert kills >= LEAST_KILLS
    events = [edge.event for history in histories for edge in history]
    assert JOBS == events.count(Event.COMPLETE)
    assert events.count(Event.LAPSE) > 0
