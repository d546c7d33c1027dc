"""The store's verbs and the same work in plain SQL with asyncpg, on the same tables.

The plain loop writes the same rows and the journal, in the same batches, but has no limits,
pauses, counters, deduplication or fencing by revision.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import asyncpg

from holdfast.model import lifecycle
from holdfast.model.acceptance import Submission, accept
from holdfast.store import Change, Claim
from holdfast.store.postgres import PostgresSettings, PostgresStore
from holdfast.store.postgres.rows import policy_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from holdfast.model.job import Job

BATCH = 500
BULK = 1000
SCHEMA = "holdfast"
Rates = dict[str, list[float]]

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
), recorded AS (
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
    (job, at, attempt, lease_version, to_state, event, reason, worker)
SELECT number, clock_timestamp(), 0, 0, 'SCHEDULED', 'enqueue', 'nothing to wait for', '' FROM given
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


async def measure(dsn: str, count: int, rates: Rates) -> None:
    """Measure both in turns, so that they run under the same load."""
    async with PostgresStore(PostgresSettings(dsn=dsn, schema=SCHEMA)) as store:
        connection = await asyncpg.connect(
            dsn, server_settings={"plan_cache_mode": "force_generic_plan"}
        )
        made = jobs(count, store.now()), jobs(count, store.now())
        runs = {
            "hand submit": lambda: hand_submits(connection, made[0]),
            "hand work": lambda: hand_works(connection, count),
            "store submit": lambda: store_submits(store, made[1]),
            "store work": lambda: store_works(store, count),
        }
        for name, work in runs.items():
            rates.setdefault(name, []).append(await timed(count, work))
        await connection.close()
