"""Claims and scans of leases while an open transaction keeps dead rows from being vacuumed."""

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
    NO_SCOPES,
    SETTLED_AFTER,
    ClaimKind,
    ClaimPositions,
    ClaimScan,
    Throttle,
    passed,
)
from holdfast.store.postgres.rows import places_of
from holdfast.store.postgres.statements import statement
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.store.sessions import borrowed_session, state_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from holdfast.model.job import Job
    from tests.servers import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SCHEMA = "claim_position"
BATCH = 500
CHURN = 10_000
WANT = Claim(queues=("default",), limit=1, worker="w", token="t")
FROM_THE_FRONT = ClaimScan(ClaimKind(WANT.queues, None), None)


async def _churn(store: PostgresStore, first: int) -> None:
    now = store.now()
    await store.add([make(str(first + n), now=now) for n in range(BATCH)])
    taken = await store.claim(
        Claim(queues=("default",), limit=BATCH, worker="w", token=f"t{first}")
    )
    now = store.now()
    await store.swap([Change(job, lifecycle.completed(job, None, now=now)) for job in taken])


async def _pages(store: PostgresStore, name: str, params: Mapping[str, object]) -> int:
    """Return how many pages a statement reads; it is rolled back."""
    sql = statement(name, SCHEMA)
    async with (
        borrowed_session(store) as session,
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
    """A store that still has the dead rows and index entries of all its finished jobs."""
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


async def test_claim_reads_few_pages_despite_dead_rows_before_the_first_job(
    postgres_server: Postgres,
) -> None:
    async with _churned(postgres_server) as store:
        await asyncio.sleep(SETTLED_AFTER)  # twice: the position follows a moment later
        await _churn(store, CHURN)
        await asyncio.sleep(SETTLED_AFTER)  # as above
        positions, ticks = state_of(store).positions, state_of(store).ticks()
        positions.record(FROM_THE_FRONT, [], ticks - 10.0, ticks)
        starts = positions.scan(WANT.queues, WANT.types, NO_SCOPES, ticks).starts
        await store.add([make(f"last{n}", now=store.now()) for n in range(10)])

        from_the_front = await _pages(store, "claim", claim_params(WANT, None))
        from_the_position = await _pages(store, "claim", claim_params(WANT, None, starts=starts))

    assert from_the_front > CHURN / 50  # a page for every fifty dead rows
    assert from_the_position < from_the_front / 3


async def test_position_follows_the_first_claimed_job_of_each_level(
    postgres_server: Postgres,
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        now, kinds = store.now(), ({}, {"tags": {"k": "v"}}, {"priority": Priority.HIGH})
        for n, kind in enumerate([*kinds, *kinds]):
            await store.add([make(str(n), now=now, type="one", **kind)])
        want = Claim(queues=("default",), limit=6, worker="w", token="t")
        async with borrowed_session(store) as session:
            rows = await session.run("claim", claim_params(want, None))
            cursor = await session.connection.execute(
                f"SELECT level, min(place) FROM {SCHEMA}.job GROUP BY level"
            )
            first = dict(await cursor.fetchall())
    positions = ClaimPositions()
    positions.record(FROM_THE_FRONT, places_of(rows), 0.0, 0.0)

    assert 6 == len(rows)
    assert 2 == len(first)
    scan = positions.scan(want.queues, None, NO_SCOPES, SETTLED_AFTER)
    assert scan.starts == [first.get(n, 0) for n in LEVELS]


def test_number_of_remembered_claim_kinds_is_limited() -> None:
    positions = ClaimPositions()

    for n in range(3 * MAX_CLAIM_KINDS):
        full = frozenset(["task:t"]) if n % 2 else NO_SCOPES
        positions.record(ClaimScan(ClaimKind(("q",), (str(n),), full), None), [], 0.0, 0.0)

    assert MAX_CLAIM_KINDS >= len(positions._full_at)  # nothing public shows its size
    assert MAX_CLAIM_KINDS >= len(positions._passed)


def _blocked_at(place: int, *scopes: str) -> ClaimPositions:
    """Positions after two scans to the end that passed over the jobs of full limits."""
    positions = ClaimPositions()
    ends = passed(WANT.queues, [], place, at_end=True)
    for ticks in (0.0, SETTLED_AFTER):
        scan = positions.scan(WANT.queues, None, frozenset(scopes), ticks)
        positions.record(scan, ends, ticks, ticks)
    return positions


@pytest.mark.parametrize(
    ("full", "start"),
    [(["task:a"], 7), (["task:a", "task:b"], 7), (["task:b"], None), ([], None)],
)
def test_jobs_behind_full_limits_are_passed_over_while_these_stay_full(
    full: list[str], start: int | None
) -> None:
    positions = _blocked_at(7, "task:a")

    scan = positions.scan(WANT.queues, None, frozenset(full), 2 * SETTLED_AFTER)

    assert (None if start is None else [start] * len(LEVELS)) == scan.starts


def test_jobs_behind_full_limits_are_read_again_after_a_while() -> None:
    positions = _blocked_at(7, "task:a")

    assert positions.scan(WANT.queues, None, frozenset(["task:a"]), 60.0).starts is None


def test_scan_with_fewer_full_limits_replaces_an_earlier_one() -> None:
    positions = _blocked_at(7, "task:a", "task:b")
    fewer = frozenset(["task:a"])
    scan = positions.scan(WANT.queues, None, fewer, 1.0)
    positions.record(scan, passed(WANT.queues, [], 9, at_end=True), 1.0, 1.0)

    both = positions.scan(WANT.queues, None, fewer | {"task:b"}, 1.0 + SETTLED_AFTER)

    assert ClaimKind(WANT.queues, None, fewer) == both.kind
    assert [9] * len(LEVELS) == both.starts


def test_scan_that_took_enough_jobs_has_read_the_levels_before_the_last_one() -> None:
    places = [("a", 2, 30), ("b", 1, 20), ("b", 1, 25)]

    found = passed(("a", "b"), places, 50, at_end=False)

    assert [("a", n, 50) for n in LEVELS] + [("b", 0, 50), ("b", 1, 20)] == found


async def test_leases_settled_long_ago_are_not_read_again(
    postgres_server: Postgres,
) -> None:
    async with _churned(postgres_server) as store:
        later = store.now() + timedelta(hours=1)  # after the end of every lease
        state_of(store).leases.record(None, later)
        state_of(store).leases.record_full_scan(state_of(store).ticks(), 10.0)
        since = state_of(store).leases.start(state_of(store).ticks())

        ends = {"limit": 100, "now": later}
        all_of_them = await _pages(store, "overdue", {**ends, "leased": None})
        the_newest = await _pages(store, "overdue", {**ends, "leased": since})

    assert all_of_them > CHURN / 50
    assert the_newest < all_of_them / 10


@contextlib.asynccontextmanager
async def _one_claimed(server: Postgres) -> AsyncIterator[tuple[PostgresStore, Job, ManualClock]]:
    """A store with a manual clock and one claimed job."""
    clock = ManualClock()
    empty_schema(server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=server.dsn, schema=SCHEMA), clock=clock) as store:
        await store.add([make("lost", now=store.now())])
        (job,) = await store.claim(WANT)
        yield store, job, clock


async def test_lease_that_ended_without_an_outcome_is_found_again(
    postgres_server: Postgres,
) -> None:
    async with _one_claimed(postgres_server) as (store, job, clock):
        clock.advance(timedelta(hours=1))

        assert [late.id for late in await store.overdue(10)] == [job.id]
        state_of(store).leases.record_full_scan(state_of(store).ticks(), 10.0)

        assert job.lease is not None
        assert state_of(store).leases.start(state_of(store).ticks()) == job.lease.until
        assert [late.id for late in await store.overdue(10)] == [job.id]


async def test_lease_beyond_the_limit_of_a_scan_is_found_later(
    postgres_server: Postgres,
) -> None:
    async with _one_claimed(postgres_server) as (store, job, clock):
        await store.add([make("expired", now=store.now(), lifetime=1)])
        clock.advance(timedelta(hours=1))

        (first,) = await store.overdue(1)
        state_of(store).leases.record_full_scan(state_of(store).ticks(), 10.0)

        assert first.state is State.SCHEDULED
        assert job.id in [late.id for late in await store.overdue(10)]


async def test_scan_with_limit_zero_does_not_move_the_lease_position(
    postgres_server: Postgres,
) -> None:
    async with _one_claimed(postgres_server) as (store, job, clock):
        clock.advance(timedelta(hours=1))

        assert [] == await store.overdue(0)
        state_of(store).leases.record_full_scan(state_of(store).ticks(), 10.0)

        assert [job.id] == [late.id for late in await store.overdue(10)]


async def test_ageing_rests_in_proportion_to_the_time_it_took(
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

        async def slow_work() -> None:
            clock.advance(timedelta(seconds=1))

        await state_of(store).ageing.run(slow_work())
        clock.advance(timedelta(seconds=19))
        await store.promote(10)
        assert ["late"] == [job.type for job in await store.claim(WANT)]

        clock.advance(timedelta(seconds=1))
        await store.promote(10)
        await store.add([make("later", now=store.now(), priority=Priority.NORMAL)])
        assert ["early"] == [job.type for job in await store.claim(WANT)]


async def test_throttled_work_that_failed_runs_again_after_its_usual_pause() -> None:
    now = 0.0
    throttle = Throttle(lambda: now, every=1.0)

    async def fails() -> None:
        raise StoreUnavailableError("gone")

    with pytest.raises(StoreUnavailableError):
        await throttle.run(fails())

    assert not throttle.is_due
    now = 1.0
    assert throttle.is_due
