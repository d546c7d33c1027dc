"""How PostgreSQL plans the statements, with many jobs and before it has any statistics."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.model.job import State
from holdfast.store import Search
from holdfast.store.postgres import PostgresSettings, PostgresStore
from holdfast.store.postgres.matching import KindCount, branches, parameters
from holdfast.store.postgres.statements import completed, statement
from tests.store.sessions import borrowed_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.servers import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SCHEMA = "plans"
MANY = 100_000
BIG = {"job", "body", "journal"}
HOT = [
    "add",
    "add_one",
    "amend",
    "cancels",
    "claim",
    "clock",
    "complete",
    "events",
    "event_bounds",
    "extend",
    "get",
    "history",
    "holder",
    "next_due",
    "note",
    "overdue",
    "promote",
    "ready",
    "swap",
    "end_edges",
]
FILL = f"""
CREATE TEMPORARY TABLE made AS
SELECT nextval('{SCHEMA}.place') AS number, gen_random_uuid()::text AS id, n
FROM generate_series(1, {MANY}) AS n;
INSERT INTO {SCHEMA}.body (number, id, type, queue, payload, policy, lease_ttl, created_at, tags,
    correlation_id)
SELECT number, id, 'type' || n % 50, 'default', '\\x', '{{}}', '30s',
    now() - make_interval(secs => {MANY} - n), jsonb_build_object('n', n::text), 'c' || n
FROM made;
INSERT INTO {SCHEMA}.job (number, place, xid, updated_at, due_at, scheduled_at, finished_at,
    expires_at, state, revision, attempt, max_attempts, generation, priority, level, held, queue,
    type)
SELECT number, number, pg_current_xact_id(), now(), now() + make_interval(hours => n), now(),
    CASE WHEN n % 10 < 6 THEN now() END, now() + interval '7 days',
    (CASE WHEN n % 1000 = 0 THEN 'FAILED' WHEN n % 10 < 6 THEN 'COMPLETED'
          WHEN n % 10 < 8 THEN 'DELAYED' ELSE 'SCHEDULED' END)::{SCHEMA}.state,
    2, 0, 3, 1, 2, 2, false, 'default', 'type' || n % 50
FROM made;
INSERT INTO {SCHEMA}.journal (job, at, attempt, lease_version, to_state, event, reason, worker)
SELECT number, now(), 0, 0, 'SCHEDULED', 'enqueue', '', '' FROM made;
"""


@pytest.fixture(scope="module")
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    """A store with many jobs of which the planner has no statistics."""
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as connection:
            for table in BIG:
                await connection.execute(
                    f"ALTER TABLE {SCHEMA}.{table} SET (autovacuum_enabled = off)"
                )
            await connection.execute(FILL)
        yield store
    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as connection:
        await connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


async def _generic_plan(store: PostgresStore, name: str) -> dict[str, object]:
    sql = statement(name, SCHEMA)
    nulls = ", ".join("NULL" for _ in sql.names)
    async with borrowed_session(store) as session:
        await session.connection.execute(f"PREPARE planned AS {sql.text}")
        call = f"EXECUTE planned({nulls})" if nulls else "EXECUTE planned"
        cursor = await session.connection.execute(f"EXPLAIN (FORMAT JSON) {call}")
        ((found,),) = await cursor.fetchall()
        await session.connection.execute("DEALLOCATE planned")
        return found[0]["Plan"]


def _nodes(plan: dict) -> Iterator[dict]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


def _objections(plan: dict) -> list[str]:
    found = []
    for node in _nodes(plan):
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG:
            found.append(f"reads all of {node['Relation Name']}")
        if node["Node Type"] == "Sort":
            below = {part.get("Relation Name") for part in _driving(node)} & BIG
            found.extend(f"sorts rows of {name}" for name in below)
    return found


def _driving(plan: dict) -> Iterator[dict]:
    """Yield the nodes that decide the number of rows: the others are looked up for each."""
    yield plan
    parts = [part for part in plan.get("Plans", ()) if part["Parent Relationship"] != "SubPlan"]
    for part in parts[:1] if plan["Node Type"] == "Nested Loop" else parts:
        yield from _driving(part)


@pytest.mark.parametrize("name", HOT)
async def test_hot_statement_neither_reads_nor_sorts_a_table_without_statistics(
    store: PostgresStore, name: str
) -> None:
    assert [] == _objections(await _generic_plan(store, name))


@pytest.mark.parametrize("name", ["deletable", "delete", "known", "link", "parents_lock", "usage"])
async def test_statement_on_given_jobs_reads_no_whole_table(
    store: PostgresStore, name: str
) -> None:
    plan = await _generic_plan(store, name)

    assert [] == [why for why in _objections(plan) if why.startswith("reads")]


@pytest.mark.parametrize("name", ["browse", "browse_back"])
async def test_page_of_records_begins_where_the_last_one_ended(
    store: PostgresStore, name: str
) -> None:
    plan = await _generic_plan(store, name)

    (condition,) = [node["Index Cond"] for node in _nodes(plan) if "Index Cond" in node]
    assert f"key {'<' if 'back' in name else '>'} $" in condition.replace("(", "")


async def test_claim_finds_its_jobs_by_the_index_of_ready_ones(store: PostgresStore) -> None:
    plan = await _generic_plan(store, "claim")

    indexes = {node.get("Index Name") for node in _nodes(plan)}
    assert {"job_ready", "job_pkey", "body_pkey"} <= indexes


async def test_failures_are_counted_without_reading_jobs(store: PostgresStore) -> None:
    plan = await _generic_plan(store, "failure_totals")

    assert set() == {node.get("Relation Name") for node in _nodes(plan)} & BIG


@pytest.mark.parametrize("name", ["claim", "complete", "extend", "note", "swap"])
async def test_statement_on_given_jobs_finds_each_by_its_number(
    store: PostgresStore, name: str
) -> None:
    async with borrowed_session(store) as session:
        await session.connection.execute(f"ANALYZE {SCHEMA}.job, {SCHEMA}.body")

    plan = await _generic_plan(store, name)

    found = list(_nodes(plan))
    indexes = {
        node["Index Name"]
        for node in found
        if node.get("Relation Name") == "job" and "Index Name" in node
    }
    assert {"job_pkey"} == indexes - {"job_ready"}
    hashed = [node for node in found if "Hash Join" == node["Node Type"]]
    assert not BIG & {below.get("Relation Name") for node in hashed for below in _nodes(node)}


async def test_kinds_are_listed_without_reading_all_records(store: PostgresStore) -> None:
    async with borrowed_session(store) as session:
        await session.connection.execute(
            f"INSERT INTO {SCHEMA}.record (kind, key, data, version)"
            f" SELECT kind, n::text, '', 1 FROM generate_series(1, {MANY}) AS n,"
            " (VALUES ('audit'), ('other')) AS kinds (kind)"
        )
        sql = statement("kinds", SCHEMA).text
        cursor = await session.connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        ((found,),) = await cursor.fetchall()
    assert ["audit", "other"] == await store.kinds()
    read = [n["Actual Rows"] * n["Actual Loops"] for n in _nodes(found[0]["Plan"]) if "Alias" in n]
    assert max(read) < 10


async def test_locks_with_a_prefix_are_a_range_of_the_index(store: PostgresStore) -> None:
    async with borrowed_session(store) as session:
        await session.connection.execute(
            f"INSERT INTO {SCHEMA}.hold (name, holder, until, data)"
            f" SELECT 'other:' || n, 'h', now() + interval '1 day', '' FROM"
            f" generate_series(1, {MANY}) AS n"
        )
    await store.lock("mine:1", "h", timedelta(days=1))
    assert ["mine:1"] == [lock.name for lock in await store.locks("mine:")]

    plan = await _generic_plan(store, "locks")

    (condition,) = [node["Index Cond"] for node in _nodes(plan) if "Index Cond" in node]
    assert "name >= $" in condition
    assert "name < $" in condition
    assert "Seq Scan" not in {node["Node Type"] for node in _nodes(plan)}


async def test_oldest_ready_job_is_found_by_the_index_of_ready_ones(store: PostgresStore) -> None:
    plan = await _generic_plan(store, "queues")

    read = [node for node in _nodes(plan) if node.get("Relation Name") == "job"]
    assert ["job_ready"] == [node.get("Index Name") for node in read]


async def test_jobs_by_the_beginning_of_an_id_are_a_range_of_the_index(
    store: PostgresStore,
) -> None:
    async with borrowed_session(store) as session:
        await session.connection.execute(f"ANALYZE {SCHEMA}.job, {SCHEMA}.body")
        search = Search(id_prefix="3f2a", states=(State.COMPLETED, State.FAILED))
        (branch,) = branches(search, [KindCount("COMPLETED", None, MANY, MANY, MANY)])
        sql = completed(
            f"EXPLAIN (FORMAT JSON) SELECT number FROM {branch.sql(search)}"
            f" ORDER BY {branch.place(search)} DESC LIMIT 51",
            SCHEMA,
        )
        found = await session.run_once(sql, parameters(search))

    indexes = {node.get("Index Name") for node in _nodes(json.loads(found[0][0])[0]["Plan"])}
    assert "body_id" in indexes
