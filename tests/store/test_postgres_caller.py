"""Jobs written in the caller's own transaction exist if and only if that commits."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import create_engine, text

from holdfast.errors import StaleLeaseError, StoreError, StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.job import State
from holdfast.runtime.clock import SystemClock
from holdfast.store import AddStatus, Claim, Fence
from holdfast.store.postgres import PostgresSettings, PostgresStore
from tests.conformance.hand import Hand
from tests.conformance.stores import empty_schema
from tests.store.callers import BLOCKING_DRIVERS, CALLERS, RolledBack, psycopg_async
from tests.store.sessions import state_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "caller"


@pytest.fixture
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        yield store


@pytest.fixture
def hand(store: PostgresStore) -> Hand:
    return Hand(store, SystemClock())


caller = pytest.mark.parametrize("caller", CALLERS)


@caller
@pytest.mark.req("S-1", stores=["postgres"])
async def test_job_appears_and_wakes_workers_when_the_transaction_commits(
    caller: str, store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    assert await state_of(store).wake.is_notified()
    seen = await store.arrivals(["default"], -1, timedelta(0))
    plain, keyed = hand.job("plain", tags={"a": "b"}), hand.job("keyed", idempotency_key="k")
    child = hand.job("child", after=[keyed])

    async with CALLERS[caller](postgres_server.dsn) as connection:
        added = await store.add([plain, keyed, child], connection=connection)
        before_commit = await store.get([plain.id])
        assert seen == await store.arrivals(["default"], seen, timedelta(0))

    assert [AddStatus.ACCEPTED] * 3 == [answer.status for answer in added]
    assert [None] == before_commit
    assert seen != await store.arrivals(["default"], seen, timedelta(seconds=10))
    stored = await store.get([plain.id, keyed.id, child.id])
    assert [State.SCHEDULED, State.SCHEDULED, State.PENDING] == [job.state for job in stored if job]
    assert [keyed.id] == await store.parents(child.id)


@caller
async def test_job_never_existed_when_the_transaction_rolls_back(
    caller: str, store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    plain, keyed = hand.job("plain"), hand.job("keyed", idempotency_key="k")

    async def submit_and_fail() -> None:
        async with CALLERS[caller](postgres_server.dsn) as connection:
            await store.add([plain, keyed], connection=connection)
            raise RolledBack

    with pytest.raises(RolledBack):
        await submit_and_fail()

    assert [None, None] == await store.get([plain.id, keyed.id])
    again = hand.job("again", type="keyed", idempotency_key="k")
    assert [AddStatus.ACCEPTED] == [answer.status for answer in await store.add([again])]


async def test_refused_batch_leaves_the_callers_transaction_usable(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    await hand.add("first", type="t", idempotency_key="k", payload=1)

    async with psycopg_async(postgres_server.dsn) as connection:
        conflict = [hand.job("other"), hand.job("second", type="t", idempotency_key="k", payload=2)]
        refused = await store.add(conflict, connection=connection)
        good = hand.job("good")
        await store.add([good], connection=connection)

    assert [AddStatus.ABORTED, AddStatus.CONFLICT] == [answer.status for answer in refused]
    assert [None, good.id] == [j and j.id for j in await store.get([conflict[0].id, good.id])]


async def test_unknown_kind_of_connection_is_refused_by_name(
    store: PostgresStore, hand: Hand
) -> None:
    with pytest.raises(StoreError, match="must be a connection of psycopg 3 or asyncpg"):
        await store.add([hand.job("a")], connection=object())


async def _running(store: PostgresStore, hand: Hand, label: str = "job") -> Fence:
    job = await hand.add(label)
    await store.claim(Claim(queues=("default",), limit=1, worker="w", token=f"t.{label}"))
    return Fence(job.id, f"t.{label}")


async def _counter(dsn: str) -> psycopg.AsyncConnection:
    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    await connection.execute("CREATE TABLE IF NOT EXISTS counter (n integer)")
    await connection.execute("TRUNCATE counter")
    return connection


async def _counted(connection: psycopg.AsyncConnection) -> int:
    async with connection:
        cursor = await connection.execute("SELECT count(*) FROM counter")
        ((count,),) = await cursor.fetchall()
        return count


@pytest.mark.req("S-5", stores=["postgres"])
async def test_handler_writes_and_completion_commit_together(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    counter = await _counter(postgres_server.dsn)
    fence = await _running(store, hand)
    (parent,) = await store.get([fence.job_id])
    child = hand.job("child", after=[parent])
    await store.add([child])

    async with store.transaction(
        fence, lambda job: lifecycle.completed(job, b"1", now=store.now())
    ) as connection:
        await connection.execute("INSERT INTO counter VALUES (1)")
        assert [State.RUNNING] == [j.state for j in await store.get([fence.job_id]) if j]
        assert [True] == [renewal.held for renewal in await store.extend([fence])]

    (job,) = await store.get([fence.job_id])
    assert job is not None
    assert (State.COMPLETED, b"1") == (job.state, job.result)
    assert [child.id] == [d.job.id for d in await store.dependents(10)]
    assert 1 == await _counted(counter)


@pytest.mark.req("S-5", stores=["postgres"])
async def test_stale_handler_writes_roll_back(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    counter = await _counter(postgres_server.dsn)
    fence = await _running(store, hand)

    async def work_while_the_lease_is_lost() -> None:
        async with store.transaction(
            fence, lambda job: lifecycle.completed(job, None, now=store.now())
        ) as connection:
            await connection.execute("INSERT INTO counter VALUES (1)")
            (job,) = await store.get([fence.job_id])
            assert job is not None
            await hand.swap(job, lifecycle.given_back(job, now=store.now()))
            await store.claim(Claim(queues=("default",), limit=1, worker="x", token="other"))

    with pytest.raises(StaleLeaseError):
        await work_while_the_lease_is_lost()

    (job,) = await store.get([fence.job_id])
    assert job is not None
    assert job.lease is not None
    assert (State.RUNNING, "other") == (job.state, job.lease.token)
    assert 0 == await _counted(counter)


async def test_decision_sees_a_cancel_request_made_during_the_transaction(
    store: PostgresStore, hand: Hand
) -> None:
    fence = await _running(store, hand)

    async with store.transaction(fence, lambda job: lifecycle.cancelled(job, now=store.now())):
        (job,) = await store.get([fence.job_id])
        assert job is not None
        request = lifecycle.cancel_requested(job, reason="enough", force=False, now=store.now())
        await hand.swap(job, request)

    (job,) = await store.get([fence.job_id])
    assert job is not None
    assert (State.CANCELLED, "enough") == (job.state, job.failure and job.failure.message)


async def test_failed_handler_writes_nothing_and_keeps_its_lease(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    counter = await _counter(postgres_server.dsn)
    fence = await _running(store, hand)

    async def fail() -> None:
        async with store.transaction(
            fence, lambda job: lifecycle.completed(job, None, now=store.now())
        ) as connection:
            await connection.execute("INSERT INTO counter VALUES (1)")
            raise RolledBack

    with pytest.raises(RolledBack):
        await fail()

    assert [True] == [renewal.held for renewal in await store.extend([fence])]
    assert 0 == await _counted(counter)


async def test_handler_that_deallocates_statements_does_not_affect_the_next(
    postgres_server: Postgres, store: PostgresStore, hand: Hand
) -> None:
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, pool=1)
    async with PostgresStore(settings) as small:
        fence = await _running(small, hand)

        async def work(statement: str) -> None:
            async with small.transaction(
                fence, lambda job: lifecycle.completed(job, None, now=small.now())
            ) as connection:
                await connection.execute(statement.encode())

        with pytest.raises(StaleLeaseError):  # the statements are prepared from here on
            async with small.transaction(Fence(fence.job_id, "other"), lambda job: job):
                pass
        with pytest.raises(StoreUnavailableError):
            await work("DEALLOCATE ALL")
        await work("SELECT 1")

    (job,) = await store.get([fence.job_id])
    assert job is not None
    assert State.COMPLETED is job.state


async def test_handlers_transactions_leave_connections_for_heartbeats(
    postgres_server: Postgres, store: PostgresStore, hand: Hand
) -> None:
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, pool=1)
    async with PostgresStore(settings) as small:
        fence = await _running(small, hand)

        async with small.transaction(
            fence, lambda job: lifecycle.completed(job, None, now=small.now())
        ):
            renewals = await asyncio.wait_for(small.extend([fence]), 10)

    assert [True] == [renewal.held for renewal in renewals]


@pytest.mark.parametrize("driver", BLOCKING_DRIVERS)
@pytest.mark.parametrize("option", [{"yield_per": 1}, {"stream_results": True}])
async def test_jobs_are_submitted_while_the_caller_reads_row_by_row(
    store: PostgresStore,
    hand: Hand,
    postgres_server: Postgres,
    driver: str,
    option: dict[str, object],
) -> None:
    jobs = [hand.job(str(n)) for n in range(3)]
    engine = create_engine(postgres_server.dsn.replace("postgresql:", f"postgresql+{driver}:"))

    with engine.connect().execution_options(**option) as connection:
        for n, _ in enumerate(connection.execute(text("SELECT generate_series(1, 3)"))):
            await store.add([jobs[n]], connection=connection)
        connection.commit()
    engine.dispose()

    assert [job.id for job in jobs] == [job.id for job in await hand.get_all(*jobs)]
