"""Which claims wait for each other when limits apply."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.errors import StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.store import Change, Claim, LimitRule
from holdfast.store.postgres import PostgresSettings, PostgresStore, claim_position
from holdfast.store.postgres.claim import claim_params, lock_params
from holdfast.store.postgres.claim_position import SETTLED_AFTER
from holdfast.store.postgres.connection import PostgresSession
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.store.sessions import borrowed_session, state_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "limits"
TIMEOUT = timedelta(seconds=30)
_numbers = itertools.count()


@pytest.fixture
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    """A store in which one queue is limited and another claim holds that limit's lock."""
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        jobs = [make(queue, now=store.now(), queue=queue) for queue in ("narrow", "wide")]
        await store.add(jobs)
        await store.limit("queue:narrow", LimitRule(concurrency=5))
        held, release = asyncio.Event(), asyncio.Event()

        async def hold(session: PostgresSession) -> None:
            await session.run("limits_lock", lock_params(_want("narrow")))
            held.set()
            await release.wait()

        holding = asyncio.create_task(state_of(store).pool.atomically(hold))
        await held.wait()
        yield store
        release.set()
        await holding


def _want(queue: str) -> Claim:
    return Claim(queues=(queue,), limit=10, worker="w", token="t")


async def _claim(store: PostgresStore, queue: str) -> list[str]:
    return [job.queue for job in await store.claim(_want(queue))]


async def test_claims_under_the_same_limit_wait_for_each_other(store: PostgresStore) -> None:
    claiming = asyncio.create_task(_claim(store, "narrow"))

    done, _ = await asyncio.wait([claiming], timeout=0.3)

    assert set() == done
    claiming.cancel()
    await asyncio.wait([claiming])


async def test_claim_without_a_limit_does_not_wait(store: PostgresStore) -> None:
    async with asyncio.timeout(10):
        assert ["wide"] == await _claim(store, "wide")


async def test_claim_leaves_a_job_that_is_younger_than_its_transaction(
    postgres_server: Postgres,
) -> None:
    """In the journal its claim would come before its submission."""
    async with _empty_store(postgres_server) as store, borrowed_session(store) as session:
        async with session.connection.transaction():
            await session.connection.execute("SELECT pg_current_xact_id()")
            await store.add([make("late", now=store.now(), queue="wide")])
            params = claim_params(_want("wide"), None)
            found = [await session.run(name, params) for name in ("ready", "claim")]

        assert [[], []] == found
        assert ["wide"] == await _claim(store, "wide")


# --- jobs without a limit beside jobs with one -----------------------------------------------


@asynccontextmanager
async def _empty_store(
    server: Postgres, timeout: timedelta = TIMEOUT
) -> AsyncIterator[PostgresStore]:
    empty_schema(server.dsn, SCHEMA)
    settings = PostgresSettings(dsn=server.dsn, schema=SCHEMA, timeout=timeout)
    async with PostgresStore(settings) as store:
        yield store


@asynccontextmanager
async def _locked(server: Postgres, scope: str) -> AsyncIterator[None]:
    """Lock a limit as a claim under it does."""
    name = f'holdfast limit "{SCHEMA}" {scope}'
    async with await psycopg.AsyncConnection.connect(server.dsn) as other:
        await other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))
        yield


async def _add(store: PostgresStore, *types: str) -> None:
    jobs = [make(f"{next(_numbers)}", now=store.now(), type=type_) for type_ in types]
    await store.add(jobs)


async def _types(store: PostgresStore, limit: int = 10) -> list[str]:
    want = Claim(queues=("default",), limit=limit, worker="w", token="t", types=("free", "single"))
    async with asyncio.timeout(5):
        return [job.type for job in await store.claim(want)]


async def test_job_before_one_with_a_limit_is_claimed_without_the_lock(
    postgres_server: Postgres,
) -> None:
    async with _empty_store(postgres_server) as store:
        await store.limit("task:single", LimitRule(concurrency=1))
        await _add(store, "free", "free", "single")
        async with _locked(postgres_server, "task:single"):
            assert ["free", "free"] == await _types(store, 2)

            with pytest.raises(TimeoutError):
                await _types(store)


async def test_jobs_behind_a_full_limit_are_claimed_without_its_lock(
    postgres_server: Postgres,
) -> None:
    async with _empty_store(postgres_server) as store:
        await store.limit("task:single", LimitRule(concurrency=1))
        await _add(store, "single", "single", "free")
        assert ["single", "free"] == await _types(store)
        await _add(store, "free")
        async with _locked(postgres_server, "task:single"):
            assert ["free"] == await _types(store)


async def test_claim_returns_the_jobs_it_has_when_it_cannot_go_on(
    postgres_server: Postgres,
) -> None:
    """Else they would wait for the end of their leases."""
    async with _empty_store(postgres_server, timeout=timedelta(seconds=1)) as store:
        await store.limit("task:single", LimitRule(concurrency=1))
        await _add(store, "free", "single")
        async with _locked(postgres_server, "task:single"):
            assert ["free"] == await _types(store)
            with pytest.raises(StoreUnavailableError):
                await _types(store)

        assert ["single"] == await _types(store)


@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_jobs_with_and_without_a_limit_start_in_their_order(
    postgres_server: Postgres, limit: int
) -> None:
    types = ["free", "single", "free", "single", "single", "free"]
    async with _empty_store(postgres_server) as store:
        await store.limit("task:single", LimitRule(concurrency=2))
        await _add(store, *types)

        claimed = [type_ for _ in range(6) for type_ in await _types(store, limit)]

    assert [*types[:4], "free"] == claimed


async def test_job_that_names_no_key_has_no_limit_per_key(postgres_server: Postgres) -> None:
    async with _empty_store(postgres_server) as store:
        await store.limit("key:single", LimitRule(concurrency=1))
        await _add(store, "single", "single")
        async with _locked(postgres_server, "key:single"):
            assert ["single", "single"] == await _types(store)


async def test_slot_that_another_process_freed_is_used(postgres_server: Postgres) -> None:
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)
    async with _empty_store(postgres_server) as store, PostgresStore(settings) as other:
        await store.limit("task:single", LimitRule(concurrency=1))
        await _add(store, "single", "single", "free")
        want = Claim(queues=("default",), limit=1, worker="v", token="u")
        (running,) = await other.claim(want)
        assert ["free"] == await _types(store)

        done = lifecycle.completed(running, None, now=other.now())
        await other.swap([Change(running, done)])

        assert ["single"] == await _types(store)


async def _settled_behind(store: PostgresStore, count: int) -> None:
    """Fill a limit of one, let many jobs wait behind it, and claim until these are passed over."""
    await store.limit("task:single", LimitRule(concurrency=1))
    await _add(store, *["single"] * count)
    assert ["single"] == await _types(store)
    for _ in range(3):
        await asyncio.sleep(SETTLED_AFTER)  # twice: the position follows a moment later
        assert [] == await _types(store)


async def test_jobs_behind_a_full_limit_are_not_read_again(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_position, "FULL_EVERY", 60.0)
    async with _empty_store(postgres_server) as store:
        await _settled_behind(store, 500)
        read = """SELECT idx_tup_fetch FROM pg_stat_user_indexes
            WHERE schemaname = 'limits' AND indexrelname = 'job_ready'"""

        async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as other:

            async def fetched() -> int:
                await other.execute("SELECT pg_stat_clear_snapshot()")
                await asyncio.sleep(1.5)  # a session reports what it did about once a second
                await _types(store)
                row = await (await other.execute(read)).fetchone()
                await other.rollback()
                assert row is not None
                return row[0]

            before = await fetched()
            for _ in range(20):
                assert [] == await _types(store)
            after = await fetched()

    assert after - before < 500


async def test_job_in_front_of_passed_ones_is_found_within_a_second_or_so(
    postgres_server: Postgres,
) -> None:
    """As after a commit that took long: its place was given before theirs."""
    early = "UPDATE limits.job SET place = 0 WHERE type = 'free' RETURNING number"
    async with _empty_store(postgres_server) as store:
        await _settled_behind(store, 50)
        async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as other:
            await store.add([make("free", now=store.now(), type="free")])
            assert await (await other.execute(early)).fetchone()

        assert ["free"] == await eventually(lambda: _types(store), within=5, every=0.1)


@pytest.mark.parametrize(("type_", "woken"), [("single", True), ("paced", False), ("free", False)])
async def test_end_of_a_job_wakes_others_only_if_it_makes_room(
    postgres_server: Postgres, type_: str, *, woken: bool
) -> None:
    async with _empty_store(postgres_server) as store:
        await store.limit("task:single", LimitRule(concurrency=1))
        await store.limit("task:paced", LimitRule(rate=1))
        await _add(store, type_)
        (job,) = await store.claim(_want("default"))
        assert await state_of(store).wake.is_notified()  # which wakes once
        seen = await store.arrivals(["default"], -1, timedelta(0))

        await store.swap([Change(job, lifecycle.completed(job, None, now=store.now()))])

        assert woken == (seen != await store.arrivals(["default"], seen, timedelta(0)))
