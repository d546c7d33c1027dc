"""Claiming while an open transaction elsewhere keeps every dead row from being removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import AsyncRawCursor

from holdfast import lifecycle
from holdfast.store import Change, Claim
from holdfast.store.postgres import PostgresStore, Settings
from holdfast.store.postgres.limiting import claim_params
from holdfast.store.postgres.sql import statement
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SCHEMA = "bloat"
BATCH = 500
CHURN = 10_000
WANT = Claim(queues=("default",), limit=1, worker="w", token="t")


async def _churn(store: PostgresStore, first: int) -> None:
    now = store.now()
    await store.add([make(str(first + n), now=now) for n in range(BATCH)])
    taken = await store.claim(
        Claim(queues=("default",), limit=BATCH, worker="w", token=f"t{first}")
    )
    now = store.now()
    await store.swap([Change(job, lifecycle.completed(job, None, now=now)) for job in taken])


async def _pages(store: PostgresStore, heads: Sequence[int] | None) -> int:
    """How many pages a claim looks at; it is not carried out."""
    sql = statement("claim", SCHEMA)
    params = claim_params(WANT, None, heads=heads)
    async with (
        store._database._session() as session,
        session.connection.transaction(force_rollback=True),
    ):
        cursor = AsyncRawCursor(session.connection)
        await cursor.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql.text}",
            [params[name] for name in sql.names],
        )
        ((found,),) = await cursor.fetchall()
    plan = found[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


async def test_claim_looks_at_few_pages_whatever_lies_dead_before_them(
    postgres_server: Postgres,
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with (
        PostgresStore(Settings(dsn=postgres_server.dsn, schema=SCHEMA)) as store,
        await psycopg.AsyncConnection.connect(postgres_server.dsn) as old,
    ):
        await old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await old.execute(f"SELECT count(*) FROM {SCHEMA}.job")
        for first in range(0, CHURN, BATCH):
            await _churn(store, first)
        store._heads.looked(WANT.queues, WANT.types, store._ticks(), 10.0)
        heads = store._heads.start(WANT.queues, WANT.types, store._ticks())
        await store.add([make(f"last{n}", now=store.now()) for n in range(10)])

        from_the_front = await _pages(store, None)
        from_the_head = await _pages(store, heads)

    assert from_the_front > CHURN / 50  # a page for every fifty of the dead
    assert from_the_head < from_the_front / 3
