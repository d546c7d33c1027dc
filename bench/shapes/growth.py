"""Searches, pages and counts in a store with millions of finished jobs."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import psycopg

from bench.effort import Effort
from bench.shapes.places import Places
from bench.shapes.rows import Figure, at_most
from holdfast import Holdfast
from holdfast.model.acceptance import accept
from holdfast.model.submission import Submission
from holdfast.runtime.randomness import Randomness
from holdfast.store.postgres.rows import policy_json

PORTION = 100_000
MILLISECONDS = 20.0
STATES = (
    "CASE WHEN n % 1000 = 0 THEN 'FAILED' WHEN n % 997 = 0 THEN 'DEAD_LETTER' ELSE 'COMPLETED' END"
)
TYPES = "CASE WHEN n < 1000 THEN 'old' WHEN n % 10007 = 0 THEN 'rare' ELSE 'type' || (n % 20) END"
POSTGRES = f"""
WITH made AS MATERIALIZED (
    SELECT nextval('holdfast.place') AS number, n, gen_random_uuid()::text AS id,
        ({TYPES}) AS type, 'queue' || (n % 7) AS queue, ({STATES})::holdfast.state AS state,
        now() - interval '7 days' + n * interval '0.1 s' AS at
    FROM generate_series($1::bigint, $2::bigint) AS n
), fixed AS (
    INSERT INTO holdfast.body
        (number, id, type, queue, payload, policy, lease_ttl, created_at, tags, correlation_id)
    SELECT number, id, type, queue, '\\x7b7d', $3::json, '30 s', at,
        jsonb_build_object('tenant', 't' || (n % 500), 'region', 'r' || (n % 3)), 'order-' || n / 5
    FROM made
), recorded AS (
    INSERT INTO holdfast.journal
        (job, at, attempt, lease_version, from_state, to_state, event, reason, worker)
    SELECT number, at, 1, 1, 'RUNNING', state, 'complete', '', 'worker' FROM made
), counted AS (
    INSERT INTO holdfast.delta (queue, type, priority, name, bucket, count, top)
    SELECT queue, type, 2, state::text, 0, count(*), 0 FROM made GROUP BY queue, type, state
)
INSERT INTO holdfast.job (number, xid, updated_at, finished_at, failed_at, expires_at, state,
    revision, attempt, max_attempts, generation, priority, level, held, queue, type,
    failure_category, failure_code)
SELECT number, pg_current_xact_id(), at, at, CASE WHEN state <> 'COMPLETED' THEN at END,
    at + interval '7 days', state, 4, 1, 3, 1, 2, 2, false, queue, type,
    CASE WHEN state <> 'COMPLETED' THEN 'PERMANENT' END, CASE WHEN state <> 'COMPLETED' THEN 'E' END
FROM made
"""
SQLITE = f"""
WITH RECURSIVE every (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM every WHERE n < :last)
INSERT INTO job (
    seq, id, state, queue, type, priority, rank, moved, revision, attempt, max_attempts,
    generation, held, ripe, created_at, updated_at, expires_at, scheduled_at, started_at,
    finished_at, lease_ttl, lease_version, token, worker, result
)
SELECT n, randomblob(16), {STATES}, 'queue' || (n % 7), {TYPES}, 2, 2, n, 3, 1, 3, 1, 0, 0,
    :at + n * 100000, :at + n * 100000, :at + n * 100000 + 604800000000, :at, :at, :at + n * 100000,
    30000000, 1, 'token', 'worker', x'74727565'
FROM every
"""
SQLITE_BESIDE = (
    """
    INSERT INTO body (seq, kind, options, payload, correlation)
    SELECT seq, 'AFTER', :options, x'7b7d', 'order-' || (seq / 5) FROM job WHERE seq >= :first
    """,
    """
    INSERT INTO tag (name, value, seq)
    SELECT 'tenant', 't' || (seq % 500), seq FROM job WHERE seq >= :first
    """,
    """
    INSERT INTO tag (name, value, seq)
    SELECT 'region', 'r' || (seq % 3), seq FROM job WHERE seq >= :first
    """,
    """
    INSERT INTO journal (
        number, seq, previous, event, from_state, to_state, at, reason, attempt, lease_version,
        worker
    )
    SELECT seq, seq, -1, 'complete', 'RUNNING', state, updated_at, '', 1, 1, 'worker'
    FROM job WHERE seq >= :first
    """,
    """
    INSERT INTO mark (minute, first, last)
    SELECT updated_at / 60000000, min(seq), max(seq) FROM job WHERE seq >= :first GROUP BY 1
    ON CONFLICT DO UPDATE SET last = excluded.last
    """,
    """
    INSERT INTO tally (queue, type, priority, state, count)
    SELECT queue, type, 2, state, count(*) FROM job WHERE seq >= :first
    GROUP BY queue, type, state
    ON CONFLICT DO UPDATE SET count = count + excluded.count
    """,
)
OPTIONS = b'["json","standard","PT1800S","PT30S","P7D",{},true,""]'


def searches(now: datetime) -> dict[str, Mapping[str, object]]:
    """Return searches as people make them."""
    return {
        "newest": {},
        "running": {"states": ["RUNNING"]},
        "ready": {"states": ["SCHEDULED"]},
        "completed": {"states": ["COMPLETED"]},
        "failed or dead": {"states": ["FAILED", "DEAD_LETTER"]},
        "changed last": {"order": "UPDATED_DESC"},
        "failed last": {"order": "UPDATED_DESC", "states": ["FAILED"]},
        "tag, changed last": {"order": "UPDATED_DESC", "tags": {"tenant": "t7"}},
        "frequent tag, changed last": {"order": "UPDATED_DESC", "tags": {"region": "r1"}},
        "tag that no job has, changed last": {"order": "UPDATED_DESC", "tags": {"tenant": "none"}},
        "old type and tag, changed last": {
            "order": "UPDATED_DESC",
            "types": ["old"],
            "tags": {"tenant": "t7"},
        },
        "correlation, changed last": {"order": "UPDATED_DESC", "correlation_id": "order-100"},
        "old type, changed last": {"order": "UPDATED_DESC", "types": ["old"]},
        "created long ago, changed last": {
            "order": "UPDATED_DESC",
            "created_before": now - timedelta(days=7) + timedelta(minutes=10),
        },
        "type whose jobs are old": {"types": ["old"]},
        "rare type": {"types": ["rare"]},
        "two types": {"types": ["old", "type1"]},
        "type and state": {"types": ["type1"], "states": ["FAILED"]},
        "old type and state": {"types": ["old"], "states": ["COMPLETED"]},
        "queue": {"queues": ["queue3"]},
        "queue and state": {"queues": ["queue3"], "states": ["FAILED"]},
        "queue, type and state": {
            "queues": ["queue3"],
            "types": ["old"],
            "states": ["COMPLETED"],
        },
        "tag": {"tags": {"tenant": "t7"}},
        "frequent tag": {"tags": {"region": "r1"}},
        "tag and state": {"tags": {"tenant": "t7"}, "states": ["FAILED"]},
        "frequent tag and state": {"tags": {"region": "r1"}, "states": ["FAILED"]},
        "two tags": {"tags": {"tenant": "t7", "region": "r1"}},
        "correlation": {"correlation_id": "order-100"},
        "created within an hour": {"created_after": now - timedelta(hours=1)},
        "old type, created lately": {"types": ["old"], "created_after": now - timedelta(days=1)},
        "queue that no job is in": {"queues": ["none"]},
        "priority that no job has": {"priorities": ["CRITICAL"]},
        "oldest first": {"order": "CREATED_ASC"},
        "oldest of a type": {"order": "CREATED_ASC", "types": ["type1"]},
        "nothing": {"types": ["none"]},
    }


async def search(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Time every search, and its second page, in a store of many finished jobs."""
    count = effort.pick(3_000_000, 300_000, 2_000)
    url = places.fresh(store)
    async with Holdfast(url):
        pass
    (_fill_sqlite if store == "sqlite" else fill_postgres)(url, count)
    places.settle(url)
    found = []
    async with Holdfast(url) as app:
        for name, wanted in searches(datetime.now(UTC)).items():
            took = []
            for _ in range(effort.pick(5, 3, 1)):
                begun = time.perf_counter()
                page = await app.search(limit=50, **wanted)  # type: ignore[arg-type]  # a filter by name
                took.append(time.perf_counter() - begun)
                if page.next_cursor:
                    begun = time.perf_counter()
                    await app.search(limit=50, cursor=page.next_cursor, **wanted)  # type: ignore[arg-type]  # a filter by name
                    took.append(time.perf_counter() - begun)
            figure = at_most(f"ms, {name}, of {count:,}", median(took) * 1000, MILLISECONDS)
            found.append(figure)
    return found


def fill_postgres(url: str, count: int) -> None:
    """Write finished jobs of many kinds."""
    job = accept(Submission(type="bench"), job_id=Randomness().uuid(), now=datetime.now(UTC))
    policy = policy_json(job).decode()
    with psycopg.connect(url, autocommit=True) as connection:
        for first in range(0, count, PORTION):
            last = min(count, first + PORTION) - 1
            with psycopg.RawCursor(connection) as cursor:
                cursor.execute(POSTGRES, [first, last, policy])


def _fill_sqlite(url: str, count: int) -> None:
    database = sqlite3.connect(Path(url.removeprefix("sqlite:///")), isolation_level=None)
    database.execute("PRAGMA synchronous = 0")
    database.execute("PRAGMA cache_size = -200000")
    begun = datetime.now(UTC) - timedelta(days=7)
    for first in range(0, count, PORTION):
        last = min(count, first + PORTION) - 1
        values = {"first": first + 1, "last": last + 1, "at": int(begun.timestamp() * 1e6)}
        database.execute("BEGIN")
        database.execute(SQLITE, values)
        for statement in SQLITE_BESIDE:
            database.execute(statement, {"first": first + 1, "options": OPTIONS})
        database.execute("COMMIT")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
