"""What searches read among a million jobs, by the plans of the statements that they execute."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import AsyncRawCursor

from bench.shapes.growth import fill_postgres, searches
from holdfast.model.job import State
from holdfast.operations.filters import job_search
from holdfast.store import Order, Search
from holdfast.store.postgres import PostgresSettings, PostgresStore
from holdfast.store.postgres.connection import PostgresSession
from tests.conformance.hand import make

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from holdfast.store.postgres.rows import Row
    from holdfast.store.postgres.statements import Statement
    from tests.servers import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
DATABASE = "million"
MANY = 1_000_000
BACKLOG = 20_000
OF_ACME = 100
"""Jobs of a namespace, older than all others."""
MOST = 60_000
"""Rows that a search may read, about ten milliseconds; one of two kinds of tag reads most."""
BIG = {"job", "body", "journal"}
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    """A store with a million finished jobs and a backlog of newer ones, and their statistics."""
    dsn = postgres_server.dsn.removesuffix("/postgres") + f"/{DATABASE}"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {DATABASE}")
        async with PostgresStore(PostgresSettings(dsn=dsn)) as store:
            job = make("acme", now=store.now(), queue="acme/q")
            await store.add([replace(job, id=f"acme-{n}") for n in range(OF_ACME)])
            fill_postgres(dsn, MANY)
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(_BACKLOG)
                connection.execute("VACUUM ANALYZE")
            yield store
        admin.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


_BACKLOG = f"""
WITH made AS MATERIALIZED (
    SELECT nextval('holdfast.place') AS number FROM generate_series(1, {BACKLOG})
), fixed AS (
    INSERT INTO holdfast.body (number, id, type, queue, payload, policy, lease_ttl, created_at)
    SELECT number, gen_random_uuid()::text, 'new', 'queue1', '\\x7b7d',
        (SELECT policy FROM holdfast.body LIMIT 1), '30 s', now()
    FROM made
), recorded AS (
    INSERT INTO holdfast.journal
        (job, at, attempt, lease_version, to_state, event, reason, worker)
    SELECT number, now(), 0, 0, 'SCHEDULED', 'enqueue', '', '' FROM made
), counted AS (
    INSERT INTO holdfast.delta (queue, type, priority, name, bucket, count, top)
    VALUES ('queue1', 'new', 2, 'SCHEDULED', 0, {BACKLOG}, 0)
)
INSERT INTO holdfast.job (number, place, xid, updated_at, scheduled_at, expires_at, state,
    revision, attempt, max_attempts, generation, priority, level, held, queue, type)
SELECT number, number, pg_current_xact_id(), now(), now(), now() + interval '7 days', 'SCHEDULED',
    2, 0, 3, 1, 2, 2, false, 'queue1', 'new'
FROM made
"""


class Watch:
    """Explains every statement of a search in the transaction that executes it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.read = 0
        execute = PostgresSession.run_once

        async def watched(
            session: PostgresSession, sql: Statement, params: Mapping[str, object]
        ) -> list[Row]:
            cursor = AsyncRawCursor(session.connection)
            values = [params[name] for name in sql.names]
            await cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql.text}", values)
            ((found,),) = await cursor.fetchall()
            self.read += sum(map(_rows_read, _nodes(found[0]["Plan"])))
            return await execute(session, sql, params)

        patch.setattr(PostgresSession, "run_once", watched)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


def _rows_read(node: dict[str, Any]) -> int:
    if node.get("Relation Name") not in BIG:
        return 0
    rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    return int(rows * node["Actual Loops"])


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.mark.parametrize("name", sorted(searches(NOW)))
async def test_search_reads_little_of_a_million_jobs(
    store: PostgresStore, watch: Watch, name: str
) -> None:
    search = job_search({"limit": 50, **searches(NOW)[name]})
    # By the last change, the backlog comes first: a row of the journal, the job and its body each.
    passed = 3 * BACKLOG if search.order is Order.UPDATED_DESC and search.tags else 0

    await store.find(search)

    assert watch.read <= MOST + passed


@pytest.mark.parametrize("state", [State.COMPLETED, State.SCHEDULED])
@pytest.mark.parametrize("order", [Order.CREATED_ASC, Order.CREATED_DESC])
async def test_list_of_a_state_does_not_read_jobs_of_others(
    store: PostgresStore, watch: Watch, state: State, order: Order
) -> None:
    page = await store.find(Search(states=(state,), order=order, limit=50))

    assert {state} == {job.state for job in page.jobs}
    assert watch.read <= 300


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("states", [(), (State.SCHEDULED,)])
async def test_list_of_a_namespace_does_not_read_jobs_of_others(
    store: PostgresStore, watch: Watch, order: Order, states: tuple[State, ...]
) -> None:
    page = await store.find(Search(namespace="acme", states=states, order=order, limit=50))

    assert (50, OF_ACME) == (len(page.jobs), page.total)
    assert {"acme/q"} == {job.queue for job in page.jobs}
    assert watch.read <= 10 * OF_ACME


@pytest.mark.parametrize("order", Order)
async def test_page_far_into_a_search_costs_no_more_than_the_first(
    store: PostgresStore, watch: Watch, order: Order
) -> None:
    page = await store.find(Search(order=order, limit=50))
    first = watch.read
    for _ in range(20):
        watch.read = 0
        page = await store.find(Search(order=order, limit=50, cursor=page.next_cursor))

    assert watch.read <= 2 * first
