"""The PostgreSQL store against the same work written by hand with asyncpg.

Both use the same tables on the same server in one run, fsync on, so the ratio is what the
store costs on top of the work itself. `python -m bench.postgres [JOBS]`.
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from typing import TYPE_CHECKING

import asyncpg

from holdfast import lifecycle
from holdfast.store import Change, Claim
from holdfast.store.postgres import PostgresStore, Settings
from holdfast.store.postgres.rows import policy_json
from holdfast.submission import Submission, accept
from tests import servers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from holdfast.job import Job

BATCH = 100
BULK = 1000
SCHEMA = "holdfast"

CLAIM = f"""
WITH picked AS MATERIALIZED (
    SELECT number FROM {SCHEMA}.job WHERE state = 'SCHEDULED' AND queue = $1
    ORDER BY level, place LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    UPDATE {SCHEMA}.job j
    SET state = 'RUNNING', revision = revision + 1, attempt = attempt + 1, place = NULL,
        lease_version = lease_version + 1, lease_token = $3, lease_worker = $4,
        lease_until = clock_timestamp() + b.lease_ttl, started_at = clock_timestamp(),
        updated_at = clock_timestamp(), xid = pg_current_xact_id()
    FROM picked JOIN {SCHEMA}.body b USING (number) WHERE j.number = picked.number
    RETURNING j.number, b.id, b.type, b.payload, j.attempt, j.lease_version
), told AS (
    INSERT INTO {SCHEMA}.journal
        (job, at, attempt, lease_version, from_state, to_state, event, reason, worker)
    SELECT number, clock_timestamp(), attempt, lease_version, 'SCHEDULED', 'RUNNING', 'claim',
        'claimed', $4 FROM taken
)
SELECT number, id, type, payload FROM taken
"""
COMPLETE = f"""
WITH done AS (
    UPDATE {SCHEMA}.job j
    SET state = 'COMPLETED', revision = revision + 1, finished_at = clock_timestamp(),
        updated_at = clock_timestamp(), lease_until = NULL, result = c.result,
        xid = pg_current_xact_id()
    FROM unnest($1::bigint[], $2::bytea[]) AS c (number, result)
    WHERE j.number = c.number AND j.lease_token = $3
    RETURNING j.number, j.attempt, j.lease_version
)
INSERT INTO {SCHEMA}.journal
    (job, at, attempt, lease_version, from_state, to_state, event, reason, worker)
SELECT number, clock_timestamp(), attempt, lease_version, 'RUNNING', 'COMPLETED', 'complete',
    'handler returned', $4 FROM done
"""
SUBMIT = f"""
WITH given AS MATERIALIZED (
    SELECT nextval('{SCHEMA}.place') AS number, id, payload
    FROM unnest($1::text[], $2::bytea[]) AS g (id, payload)
), fixed AS (
    INSERT INTO {SCHEMA}.body
        (number, id, type, queue, payload, policy, lease_ttl, created_at)
    SELECT number, id, 'bench', 'default', payload, $3, '30 s', clock_timestamp() FROM given
), moving AS (
    INSERT INTO {SCHEMA}.job (number, place, xid, updated_at, scheduled_at, expires_at, state,
        revision, attempt, max_attempts, generation, priority, level, held, queue, type)
    SELECT number, number, pg_current_xact_id(), clock_timestamp(), clock_timestamp(),
        clock_timestamp() + interval '7 d', 'SCHEDULED', 1, 0, 3, 1, 2, 2, false, 'default',
        'bench' FROM given
)
INSERT INTO {SCHEMA}.journal
    (job, at, attempt, lease_version, from_state, to_state, event, reason, worker)
SELECT number, clock_timestamp(), 0, 0, before::{SCHEMA}.state, after::{SCHEMA}.state, event,
    'submitted', ''
FROM given, (VALUES (NULL, 'PENDING', 'submit'), ('PENDING', 'SCHEDULED', 'enqueue'))
    AS edge (before, after, event)
"""


def jobs(count: int, now: datetime) -> list[Job]:
    """Small jobs as a client would submit them."""
    return [
        accept(
            Submission(type="bench", payload={"n": n, "text": "x" * 100}),
            job_id=str(uuid.uuid4()),
            now=now,
        )
        for n in range(count)
    ]


async def store_submits(store: PostgresStore, made: list[Job]) -> None:
    for start in range(0, len(made), BULK):
        await store.add(made[start : start + BULK])


async def store_works(store: PostgresStore, count: int) -> None:
    for _ in range(0, count, BATCH):
        token = uuid.uuid4().hex
        want = Claim(queues=("default",), limit=BATCH, worker="bench-1-abcdef", token=token)
        taken = await store.claim(want)
        now = store.now()
        await store.swap([Change(j, lifecycle.completed(j, b"null", now=now)) for j in taken])


async def hand_submits(connection: asyncpg.Connection, made: list[Job]) -> None:
    insert = await connection.prepare(SUBMIT)
    for start in range(0, len(made), BULK):
        batch = made[start : start + BULK]
        policy = policy_json(batch[0]).decode()
        await insert.fetch([job.id for job in batch], [job.payload for job in batch], policy)


async def hand_works(connection: asyncpg.Connection, count: int) -> None:
    claim, complete = await connection.prepare(CLAIM), await connection.prepare(COMPLETE)
    for _ in range(0, count, BATCH):
        token = uuid.uuid4().hex
        taken = await claim.fetch("default", BATCH, token, "bench-1-abcdef")
        results = [b"null"] * len(taken)
        await complete.fetch([row["number"] for row in taken], results, token, "bench-1-abcdef")


async def timed(count: int, work: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await work()
    return count / (time.perf_counter() - begun)


async def measure(dsn: str, count: int, rounds: int = 3) -> dict[str, float]:
    """Alternate between the two, so that both see the same machine; the best round counts."""
    best: dict[str, float] = {}
    async with PostgresStore(Settings(dsn=dsn, schema=SCHEMA)) as store:
        connection = await asyncpg.connect(
            dsn, server_settings={"plan_cache_mode": "force_generic_plan"}
        )
        for _ in range(rounds):
            made = jobs(count, store.now()), jobs(count, store.now())
            runs = {
                "hand-written submit": lambda: hand_submits(connection, made[0]),  # noqa: B023
                "hand-written claim + complete": lambda: hand_works(connection, count),
                "store submit": lambda: store_submits(store, made[1]),  # noqa: B023
                "store claim + complete": lambda: store_works(store, count),
            }
            for name, work in runs.items():
                best[name] = max(best.get(name, 0.0), await timed(count, work))
        await connection.close()
    return best


def main(arguments: list[str] | None = None) -> None:
    """Print jobs per second, and the store's share of the hand-written loop."""
    given = sys.argv[1:] if arguments is None else arguments
    count = int(given[0]) if given else 10_000
    with servers.Postgres(["full_page_writes=on", "shared_buffers=256MB"]) as server:
        best = asyncio.run(measure(server.dsn, count))
    for name, rate in best.items():
        print(f"{name:32} {rate:10,.0f} jobs/s")
    for what in ("submit", "claim + complete"):
        print(f"{what:32} {best[f'store {what}'] / best[f'hand-written {what}']:10.0%}")


if __name__ == "__main__":
    main()
