"""Claims and leases while an open transaction elsewhere keeps dead rows from being removed."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import AsyncRawCursor

from holdfast.errors import StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.job import Priority, State
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, Claim
from holdfast.store.postgres import PostgresSettings, PostgresStore
from holdfast.store.postgres.claim import claim_params
from holdfast.store.postgres.claim_position import (
    LEVELS,
    MAX_CLAIM_KINDS,
    SETTLED_AFTER,
    ClaimPositions,
    Throttle,
)
from holdfast.store.postgres.rows import places_of
from holdfast.store.postgres.statements import statement
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.lines import lent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from holdfast.model.job import Job
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


async def _pages(store: PostgresStore, name: str, params: Mapping[str, object]) -> int:
    """How many pages a statement looks at; it is not carried out."""
    sql = statement(name, SCHEMA)
    async with (
        lent(store) as session,
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


@contextlib.asynccontextmanager
async def _churned(server: Postgres) -> AsyncIterator[PostgresStore]:
    """A store whose finished jobs' dead rows and entries are all still there."""
    empty_schema(server.dsn, SCHEMA)
    async with (
        PostgresStore(PostgresSettings(dsn=server.dsn, schema=SCHEMA)) as store,
        await psycopg.AsyncConnection.connect(server.dsn) as old,
    ):
        await old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await old.execute(f"SELECT count(*) FROM {SCHEMA}.job")
        for first in range(0, CHURN, BATCH):
            await _churn(store, first)
        yield store


async def test_claim_looks_at_few_pages_whatever_lies_dead_before_them(
    postgres_server: Postgres,
) -> None:
    async with _churned(postgres_server) as store:
        await asyncio.sleep(SETTLED_AFTER)  # twice: the head follows a moment behind
        await _churn(store, CHURN)
        await asyncio.sleep(SETTLED_AFTER)
        store._state.positions.record_full_scan(WANT.queues, WANT.types, store._state.ticks(), 10.0)
        heads = store._state.positions.start(WANT.queues, WANT.types, store._state.ticks())
        await store.add([make(f"last{n}", now=store.now()) for n in range(10)])

        from_the_front = await _pages(store, "claim", claim_params(WANT, None))
        from_the_head = await _pages(store, "claim", claim_params(WANT, None, starts=heads))

    assert from_the_front > CHURN / 50  # a page for every fifty of the dead
    assert from_the_head < from_the_front / 3


async def test_head_follows_the_first_job_that_a_claim_got_of_each_level(
    postgres_server: Postgres,
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        now, kinds = store.now(), ({}, {"tags": {"k": "v"}}, {"priority": Priority.HIGH})
        for n, kind in enumerate([*kinds, *kinds]):
            await store.add([make(str(n), now=now, type="one", **kind)])
        want = Claim(queues=("default",), limit=6, worker="w", token="t")
        async with lent(store) as session:
            rows = await session.run("claim", claim_params(want, None))
            cursor = await session.connection.execute(
                f"SELECT level, min(place) FROM {SCHEMA}.job GROUP BY level"
            )
            first = dict(await cursor.fetchall())
    heads = ClaimPositions()
    heads.record_full_scan(want.queues, None, 0.0, 0.0)
    heads.record(places_of(rows), None, 0.0)

    assert 6 == len(rows)
    assert 2 == len(first)
    assert heads.start(want.queues, None, SETTLED_AFTER) == [first.get(n, 0) for n in LEVELS]


def test_kinds_of_claims_are_not_remembered_without_end() -> None:
    heads = ClaimPositions()

    for n in range(3 * MAX_CLAIM_KINDS):
        heads.record_full_scan(["q"], (str(n),), 0.0, 0.0)

    assert MAX_CLAIM_KINDS >= len(heads._full_at)


async def test_leases_that_were_answered_long_ago_are_not_looked_at_again(
    postgres_server: Postgres,
) -> None:
    async with _churned(postgres_server) as store:
        later = store.now() + timedelta(hours=1)  # when every lease would have ended
        store._state.leases.record(None, later)
        store._state.leases.record_full_scan(store._state.ticks(), 10.0)
        since = store._state.leases.start(store._state.ticks())

        ends = {"limit": 100, "now": later}
        all_of_them = await _pages(store, "overdue", {**ends, "leased": None})
        the_newest = await _pages(store, "overdue", {**ends, "leased": since})

    assert all_of_them > CHURN / 50
    assert the_newest < all_of_them / 10


@contextlib.asynccontextmanager
async def _one_claimed(server: Postgres) -> AsyncIterator[tuple[PostgresStore, Job, ManualClock]]:
    """A store by a clock of its own, with one job that somebody holds."""
    clock = ManualClock()
    empty_schema(server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=server.dsn, schema=SCHEMA), clock=clock) as store:
        await store.add([make("lost", now=store.now())])
        (job,) = await store.claim(WANT)
        yield store, job, clock


async def test_lease_that_ended_unanswered_stays_in_sight(postgres_server: Postgres) -> None:
    async with _one_claimed(postgres_server) as (store, job, clock):
        clock.advance(timedelta(hours=1))

        assert [late.id for late in await store.overdue(10)] == [job.id]
        store._state.leases.record_full_scan(store._state.ticks(), 10.0)

        assert job.lease is not None
        assert store._state.leases.start(store._state.ticks()) == job.lease.until
        assert [late.id for late in await store.overdue(10)] == [job.id]


async def test_lease_that_found_no_room_in_the_answer_stays_in_sight(
    postgres_server: Postgres,
) -> None:
    async with _one_claimed(postgres_server) as (store, job, clock):
        await store.add([make("expired", now=store.now(), lifetime=1)])
        clock.advance(timedelta(hours=1))

        (first,) = await store.overdue(1)
        store._state.leases.record_full_scan(store._state.ticks(), 10.0)

        assert first.state is State.SCHEDULED
        assert job.id in [late.id for late in await store.overdue(10)]


async def test_look_that_has_no_room_teaches_nothing_about_leases(
    postgres_server: Postgres,
) -> None:
    async with _one_claimed(postgres_server) as (store, job, clock):
        clock.advance(timedelta(hours=1))

        assert [] == await store.overdue(0)
        store._state.leases.record_full_scan(store._state.ticks(), 10.0)

        assert [job.id] == [late.id for late in await store.overdue(10)]


async def test_raising_those_that_wait_long_rests_after_it_took_long(
    postgres_server: Postgres,
) -> None:
    clock = ManualClock()
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(
        PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA), clock=clock
    ) as store:
        await store.configure("default", {"ageing": timedelta(seconds=5)})
        await store.add([make("early", now=store.now(), priority=Priority.LOW)])
        clock.advance(timedelta(seconds=60))
        await store.add([make("late", now=store.now(), priority=Priority.NORMAL)])

        async def long_walk() -> None:
            clock.advance(timedelta(seconds=1))

        await store._state.ageing.run(long_walk())
        clock.advance(timedelta(seconds=19))
        await store.promote(10)
        assert ["late"] == [job.type for job in await store.claim(WANT)]

        clock.advance(timedelta(seconds=1))
        await store.promote(10)
        await store.add([make("later", now=store.now(), priority=Priority.NORMAL)])
        assert ["early"] == [job.type for job in await store.claim(WANT)]


async def test_housekeeping_that_failed_is_tried_again_after_its_usual_pause() -> None:
    now = 0.0
    pace = Throttle(lambda: now, every=1.0)

    async def fails() -> None:
        raise StoreUnavailableError("gone")

    with pytest.raises(StoreUnavailableError):
        await pace.run(fails())

    assert not pace.is_due
    now = 1.0
    assert pace.is_due
