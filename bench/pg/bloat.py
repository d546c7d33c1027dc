"""The speed of claims among a million finished jobs, and while nothing can be vacuumed."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg

from bench.effort import Effort
from bench.pg.hand import BULK, SCHEMA, jobs, store_submits, store_works
from holdfast.store.postgres import PostgresSettings, PostgresStore
from tests import servers

FILL = f"""
WITH made AS MATERIALIZED (
    SELECT nextval('{SCHEMA}.place') AS number, gen_random_uuid()::text AS id
    FROM generate_series(1, %(count)s)
), fixed AS (
    INSERT INTO {SCHEMA}.body (number, id, type, queue, payload, policy, lease_ttl, created_at)
    SELECT number, id, 'bench', 'default', '\\x7b7d', '{{}}', '30 s', now() FROM made
), recorded AS (
    INSERT INTO {SCHEMA}.journal
        (job, at, attempt, lease_version, to_state, event, reason, worker)
    SELECT number, now(), 0, 0, %(state)s::{SCHEMA}.state, 'submit', '', '' FROM made
)
INSERT INTO {SCHEMA}.job (number, xid, updated_at, due_at, finished_at, expires_at, state,
    revision, attempt, max_attempts, generation, priority, level, held, queue, type)
SELECT number, pg_current_xact_id(), now(),
    CASE WHEN %(state)s = 'DELAYED' THEN now() + interval '1 day' END,
    CASE WHEN %(state)s = 'COMPLETED' THEN now() END, now() + interval '7 days',
    %(state)s::{SCHEMA}.state, 2, 0, 3, 1, 2, 2, false, 'default', 'bench'
FROM made
"""
PORTION = 100_000
LONGEST = 900.0
"""Seconds after which churning ends, after any number of jobs."""
REPORT_EVERY = 90.0


async def main(*, effort: Effort, folder: str | None) -> None:
    """Print the cost of a job before and after; the server chooses its own folder."""
    del folder
    finished, delayed, churn = effort.pick(
        (1_000_000, 200_000, 3_000_000), (100_000, 20_000, 50_000), (2_000, 1_000, 1_000)
    )
    chunk = effort.pick(5_000, 5_000, 500)
    options = ["full_page_writes=on", "shared_buffers=512MB", "max_wal_size=4GB"]
    with servers.Postgres(options) as server:
        async with PostgresStore(PostgresSettings(dsn=server.dsn, schema=SCHEMA)) as store:
            meter = Meter(server, store, chunk)
            await meter.work("empty")
            begun = time.perf_counter()
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                fill(connection, "COMPLETED", finished)
                fill(connection, "DELAYED", delayed)
                connection.execute("VACUUM ANALYZE")
            print(f"(written in {time.perf_counter() - begun:.0f} s)", flush=True)
            await meter.work(f"{finished:,} finished, {delayed:,} delayed")
            with psycopg.connect(server.dsn) as old:
                old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                old.execute(f"SELECT count(*) FROM {SCHEMA}.queue".encode())
                await meter.work("the same, an old snapshot open")
                await churned(store, meter, churn)


def fill(connection: psycopg.Connection[tuple[int]], state: str, count: int) -> None:
    """Write jobs in a state, in portions."""
    for _ in range(0, count, PORTION):
        with psycopg.ClientCursor(connection) as cursor:
            cursor.execute(FILL, {"count": min(count, PORTION), "state": state})


async def churned(store: PostgresStore, meter: Meter, churn: int) -> None:
    """Submit and complete many more jobs until the time is over, and measure in between."""
    begun = reported = time.perf_counter()
    done = 0
    while done < churn and time.perf_counter() - begun < LONGEST:
        await store_submits(store, jobs(BULK, store.now()))
        await store_works(store, BULK)
        done += BULK
        if time.perf_counter() - reported > REPORT_EVERY:
            await meter.work(f"after {done:,} more under that snapshot")
            reported = time.perf_counter()
    await meter.work(f"after {done:,} more under that snapshot")
    print(f"({done:,} of {churn:,} jobs took {time.perf_counter() - begun:.0f} s)")


class Meter:
    """Measures the same piece of work repeatedly."""

    def __init__(self, server: servers.Postgres, store: PostgresStore, chunk: int) -> None:
        self._server = server
        self._store = store
        self._chunk = chunk

    async def work(self, title: str) -> None:
        """Submit, claim and complete some jobs, then run maintenance once."""
        store, chunk = self._store, self._chunk
        new = jobs(chunk, store.now())
        await store_submits(store, new)
        begun, cpu = time.perf_counter(), self._cpu()
        await store_works(store, chunk)
        seconds, spent = time.perf_counter() - begun, self._cpu() - cpu
        begun = time.perf_counter()
        await store.overdue(100)
        leases = time.perf_counter() - begun
        await store.overdue(100)
        again = time.perf_counter() - begun - leases
        await store.promote(100)
        due = time.perf_counter() - begun - leases - again
        print(
            f"{title:44} {chunk / seconds:8,.0f} jobs/s  {spent / chunk * 1e6:5.0f} us of"
            f" server time each  leases {leases * 1000:6.1f} ms, again {again * 1000:5.1f} ms,"
            f" due jobs {due * 1000:6.1f} ms",
            flush=True,
        )

    def _cpu(self) -> float:
        """Processor time of all sessions, in seconds."""
        assert self._server.process is not None
        pid = self._server.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        used = 0.0
        for child in children:
            used += int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) / 1e9
        return used
