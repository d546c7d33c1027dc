"""The connection that a handler borrows inside its transaction: a plain one of psycopg."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader

from holdfast.errors import PermanentError, StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.job import Event, Job, Progress, State
from holdfast.runtime.clock import SystemClock
from holdfast.store import Claim, Fence, JobNote, Order, Search
from holdfast.store.postgres import PostgresSettings, PostgresStore
from tests.conformance.hand import Hand
from tests.conformance.stores import empty_schema
from tests.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "transactions"


@pytest.fixture
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    """A store with a single connection for handlers."""
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(
        PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, pool=1)
    ) as store:
        yield store


@pytest.fixture
def hand(store: PostgresStore) -> Hand:
    return Hand(store, SystemClock())


async def _running(store: PostgresStore, hand: Hand, label: str = "job") -> Fence:
    job = await hand.add(label)
    await store.claim(Claim(queues=("default",), limit=1, worker="w", token=f"t.{label}"))
    return Fence(job.id, f"t.{label}")


def _completing(
    store: PostgresStore, fence: Fence
) -> AbstractAsyncContextManager[psycopg.AsyncConnection]:
    return store.transaction(fence, lambda job: lifecycle.completed(job, None, now=store.now()))


async def _state(store: PostgresStore, fence: Fence) -> State | None:
    (job,) = await store.get([fence.job_id])
    return job.state if job else None


async def _value(connection: psycopg.AsyncConnection, query: str) -> object:
    row = await (await connection.execute(query.encode())).fetchone()
    return row[0] if row else None


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("mine"),
        TimeoutError("mine"),
        psycopg.OperationalError("of another database"),
        KeyboardInterrupt(),
        StopAsyncIteration(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_handlers_exception_is_raised_unchanged(
    store: PostgresStore, hand: Hand, error: BaseException
) -> None:
    fence = await _running(store, hand)

    async def work() -> None:
        async with _completing(store, fence):
            raise error

    with pytest.raises(type(error)) as raised:
        await work()

    assert error is raised.value
    assert State.RUNNING is await _state(store, fence)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT * FROM nowhere", psycopg.errors.UndefinedTable),
        ("SELECT * FROM nowhere.at_all", psycopg.errors.UndefinedTable),
        ("SET LOCAL statement_timeout = 1; SELECT pg_sleep(5)", psycopg.errors.QueryCanceled),
    ],
)
async def test_error_of_a_handlers_statement_is_raised_unchanged(
    store: PostgresStore, hand: Hand, statement: str, error: type[Exception]
) -> None:
    fence = await _running(store, hand)

    async def work() -> None:
        async with _completing(store, fence) as connection:
            await connection.execute(statement.encode())

    with pytest.raises(error):
        await work()


async def test_handlers_lock_timeout_is_raised_unchanged(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    fence = await _running(store, hand)

    async def work() -> None:
        async with _completing(store, fence) as connection:
            await connection.execute("SET LOCAL lock_timeout = 50")
            await connection.execute("SELECT pg_advisory_xact_lock(4711)")

    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as other:
        await other.execute("SELECT pg_advisory_xact_lock(4711)")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await work()


async def test_handlers_deferred_constraint_is_raised_unchanged(
    store: PostgresStore, hand: Hand
) -> None:
    fence = await _running(store, hand)

    async def defer() -> None:
        async with _completing(store, fence) as connection:
            await connection.execute(
                "CREATE TEMP TABLE once (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)"
            )
            await connection.execute("INSERT INTO once VALUES (1), (1)")

    with pytest.raises(psycopg.errors.UniqueViolation):
        await defer()
    assert State.RUNNING is await _state(store, fence)


async def test_raised_rollback_undoes_the_block_and_leaves_the_job_running(
    store: PostgresStore, hand: Hand
) -> None:
    fence = await _running(store, hand)

    async with _completing(store, fence) as connection:
        await connection.execute("CREATE TABLE undone (n integer)")
        raise psycopg.Rollback

    assert State.RUNNING is await _state(store, fence)
    async with _completing(store, fence) as connection:
        assert await _value(connection, "SELECT to_regclass('undone') IS NULL")


@pytest.mark.parametrize(
    "statements", [["COMMIT"], ["ROLLBACK"], ["COMMIT AND CHAIN"], ["COMMIT", "SELECT 1"]]
)
async def test_transaction_ended_by_the_handler_completes_nothing(
    store: PostgresStore, hand: Hand, statements: list[str]
) -> None:
    fence = await _running(store, hand)

    async def work() -> None:
        async with _completing(store, fence) as connection:
            for statement in statements:
                await connection.execute(statement.encode())

    with pytest.raises(PermanentError, match="the handler ended the transaction itself"):
        await work()

    assert State.RUNNING is await _state(store, fence)


async def test_commit_of_the_borrowed_connection_is_refused(
    store: PostgresStore, hand: Hand
) -> None:
    fence = await _running(store, hand)

    async with _completing(store, fence) as connection:
        with pytest.raises(psycopg.ProgrammingError, match="Explicit commit"):
            await connection.commit()

    assert State.COMPLETED is await _state(store, fence)


# --- jobs that lose their lease -----------------------------------------------------------------


@pytest.fixture
async def modest(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    """A store whose role has the least rights."""
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = 'modest'").fetchone():
            connection.execute("CREATE ROLE modest LOGIN")
        database = connection.info.dbname
        connection.execute(f'GRANT CREATE ON DATABASE "{database}" TO modest'.encode())
        connection.execute("DROP SCHEMA IF EXISTS modest CASCADE")
    dsn = psycopg.conninfo.make_conninfo(postgres_server.dsn, user="modest")
    async with PostgresStore(PostgresSettings(dsn=dsn, schema="modest")) as store:
        yield store


async def test_transaction_ends_with_the_lease_of_its_job(modest: PostgresStore) -> None:
    hand = Hand(modest, SystemClock())
    stays, goes = await _running(modest, hand, "stays"), await _running(modest, hand, "goes")

    async def work(fence: Fence, begun: asyncio.Event, taken: asyncio.Event) -> None:
        async with _completing(modest, fence) as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(4713)")
            begun.set()
            await taken.wait()
            await connection.execute("SELECT 1")

    begun, taken = asyncio.Event(), asyncio.Event()
    async with _completing(modest, stays) as other:
        working = asyncio.create_task(work(goes, begun, taken))
        await begun.wait()
        (job,) = await modest.get([goes.job_id])
        assert job is not None
        await hand.swap(job, lifecycle.lease_lost(job, now=modest.now()))
        await other.execute("SELECT pg_advisory_xact_lock(4713)")
        taken.set()

        with pytest.raises(psycopg.OperationalError):
            await asyncio.wait_for(working, 10)

    assert State.COMPLETED is await _state(modest, stays)
    assert State.RETRYING is await _state(modest, goes)


async def test_session_is_named_after_its_job(store: PostgresStore, hand: Hand) -> None:
    fence = await _running(store, hand)

    async with _completing(store, fence) as connection:
        name = await _value(connection, "SHOW application_name")

    assert isinstance(name, str)
    assert name.startswith("holdfast ")
    assert name.endswith(f" {fence.job_id}")


# --- the order of events -----------------------------------------------------------------------


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_completion_comes_after_progress_reported_inside_the_block(
    store: PostgresStore, hand: Hand, is_awaited: bool
) -> None:
    fence = await _running(store, hand)
    if is_awaited:
        await store.add([hand.job("child", after=[hand.job("job")])])

    async with _completing(store, fence) as connection:
        await connection.execute("CREATE TEMP TABLE written_early ()")
        progress = Progress(50, "half", store.now())
        assert [True] == await store.note([JobNote(fence=fence, progress=progress)])

    page = await store.events(None, 100, timedelta(0))
    events = [e.transition.event if e.transition else None for e in page.events]
    assert [None, Event.COMPLETE] == [event for event in events if event in (None, Event.COMPLETE)]
    newest = await store.find(Search(order=Order.UPDATED_DESC, limit=1))
    assert [fence.job_id] == [job.id for job in newest.jobs]


# --- the session -------------------------------------------------------------------------------


async def test_borrowed_session_has_the_settings_of_the_server(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    fence = await _running(store, hand)
    names = ["statement_timeout", "lock_timeout", "enable_seqscan", "enable_bitmapscan"]
    names += ["plan_cache_mode", "jit"]
    names += ["timezone", "search_path", "transaction_isolation", "client_encoding"]

    async with _completing(store, fence) as connection:
        shown = [await _value(connection, f"SHOW {name}") for name in names]

    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as plain:
        assert [await _value(plain, f"SHOW {name}") for name in names] == shown


async def test_settings_of_the_role_for_the_store_do_not_apply_to_handlers(
    postgres_server: Postgres, store: PostgresStore, hand: Hand
) -> None:
    """Behind a pooler the role has the settings that sessions set otherwise."""
    settings = {"statement_timeout": "2s", "enable_seqscan": "off", "enable_bitmapscan": "off"}
    settings["plan_cache_mode"] = "force_generic_plan"
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    dsn = f"{postgres_server.dsn}?options={quote(options)}"
    async with PostgresStore(PostgresSettings(dsn=dsn, schema=SCHEMA, pgbouncer=True)) as pooled:
        fence = await _running(pooled, hand)

        async with _completing(pooled, fence) as connection:
            shown = [await _value(connection, f"SHOW {name}") for name in settings]

    assert ["0", "on", "on", "auto"] == shown
    assert State.COMPLETED is await _state(store, fence)


async def test_borrowed_connection_reads_values_as_psycopg_does(
    store: PostgresStore, hand: Hand
) -> None:
    fence = await _running(store, hand)

    async with _completing(store, fence) as connection:
        cursor = await connection.execute("""SELECT '{"a": 1}'::jsonb, '[2]'::json, ROW(1, 'x')""")
        row = await cursor.fetchone()

    assert ({"a": 1}, [2], ("1", "x")) == row


async def test_role_and_time_zone_of_the_handler_do_not_affect_its_completion(
    postgres_server: Postgres, store: PostgresStore, hand: Hand
) -> None:
    fence, seen = await _running(store, hand), list[Job]()

    def decide(job: Job) -> Job:
        seen.append(job)
        return lifecycle.completed(job, None, now=store.now())

    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS tenant")
        connection.execute("CREATE ROLE tenant")
    async with store.transaction(fence, decide) as connection:
        await connection.execute("SET LOCAL ROLE tenant")
        await connection.execute("SET timezone TO 'Asia/Tokyo'")

    assert State.COMPLETED is await _state(store, fence)
    assert timedelta(0) == seen[0].updated_at.utcoffset() == store.now().utcoffset()


async def test_handler_can_choose_its_isolation_level(store: PostgresStore, hand: Hand) -> None:
    fence = await _running(store, hand)

    async with _completing(store, fence) as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        assert "serializable" == await _value(connection, "SHOW transaction_isolation")

    assert State.COMPLETED is await _state(store, fence)


@pytest.mark.req("M-9")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_child_that_a_handlers_snapshot_misses_is_not_lost(
    store: PostgresStore, hand: Hand, level: str
) -> None:
    fence = await _running(store, hand)
    (parent,) = await store.get([fence.job_id])
    assert parent is not None
    await hand.add("one", after=[parent])

    async def complete_late() -> None:
        async with _completing(store, fence) as connection:
            await connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            await connection.execute("SELECT 1")
            await hand.add("two", after=[parent])

    with pytest.raises(StoreUnavailableError, match="could not serialize"):
        await complete_late()

    assert State.RUNNING is await _state(store, fence)


async def test_handlers_query_may_take_longer_than_the_stores_timeout(
    postgres_server: Postgres, store: PostgresStore, hand: Hand
) -> None:
    settings = PostgresSettings(
        dsn=postgres_server.dsn, schema=SCHEMA, timeout=timedelta(milliseconds=500)
    )
    async with PostgresStore(settings) as brisk:
        fence = await _running(brisk, hand)

        async with _completing(brisk, fence) as connection:
            await connection.execute("SELECT pg_sleep(1)")

    assert State.COMPLETED is await _state(store, fence)


async def test_completion_at_the_end_of_the_block_times_out(
    postgres_server: Postgres, store: PostgresStore, hand: Hand
) -> None:
    settings = PostgresSettings(
        dsn=postgres_server.dsn, schema=SCHEMA, timeout=timedelta(milliseconds=500)
    )
    async with (
        PostgresStore(settings) as brisk,
        await psycopg.AsyncConnection.connect(postgres_server.dsn) as other,
    ):
        fence = await _running(brisk, hand)

        async def work() -> None:
            async with _completing(brisk, fence):
                await other.execute(f"LOCK TABLE {SCHEMA}.job".encode())

        with pytest.raises(StoreUnavailableError):
            await asyncio.wait_for(work(), 10)


async def test_worker_frozen_at_the_end_of_the_block_loses_its_transaction(
    postgres_server: Postgres, store: PostgresStore, hand: Hand
) -> None:
    settings = PostgresSettings(
        dsn=postgres_server.dsn, schema=SCHEMA, timeout=timedelta(milliseconds=300)
    )
    async with PostgresStore(settings) as brisk:
        fence = await _running(brisk, hand)

        def freeze(job: Job) -> Job:
            time.sleep(1.0)  # nothing else in this process runs
            return lifecycle.completed(job, None, now=brisk.now())

        with pytest.raises(StoreUnavailableError):
            async with brisk.transaction(fence, freeze):
                pass

    assert State.RUNNING is await _state(store, fence)


# --- resetting ---------------------------------------------------------------------------------


async def test_changes_of_a_handler_to_its_session_do_not_reach_the_next(
    store: PostgresStore, hand: Hand, postgres_server: Postgres
) -> None:
    async with _completing(store, await _running(store, hand, "first")) as connection:
        pid = connection.info.backend_pid
        connection.row_factory = dict_row
        connection.prepare_threshold = 0
        connection.adapters.register_loader("int4", TextLoader)
        await connection.execute("SELECT 1 AS prepared")
        await connection.execute("PREPARE mine AS SELECT 1")
        await connection.execute("SET search_path TO pg_catalog")
        await connection.execute("SET timezone TO 'Asia/Tokyo'")
        await connection.execute("CREATE TEMP TABLE left_over (n integer)")
        await connection.execute("SELECT pg_advisory_lock(4712)")
        await connection.execute("LISTEN something")

    async with _completing(store, await _running(store, hand, "second")) as connection:
        assert pid == connection.info.backend_pid
        assert 5 == connection.prepare_threshold
        cursor = await connection.execute("SELECT 1")
        assert (1,) == await cursor.fetchone()
        assert '"$user", public' == await _value(connection, "SHOW search_path")
        assert "Asia/Tokyo" != await _value(connection, "SHOW timezone")
        assert await _value(connection, "SELECT to_regclass('pg_temp.left_over') IS NULL")
        await connection.execute("PREPARE mine AS SELECT 1")
        await connection.execute("SELECT 2", prepare=True)
        assert 0 == await _value(connection, "SELECT count(*) FROM pg_listening_channels()")
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = {}"
        assert 0 == await _value(connection, locks.format(pid))


async def test_nothing_is_prepared_behind_a_pooler(postgres_server: Postgres) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, pgbouncer=True)
    async with PostgresStore(settings) as store:
        fence = await _running(store, Hand(store, SystemClock()))

        async with _completing(store, fence) as connection:
            for _ in range(8):
                await connection.execute("SELECT 1")
            assert 0 == await _value(connection, "SELECT count(*) FROM pg_prepared_statements")


async def test_connection_is_closed_after_its_block(store: PostgresStore, hand: Hand) -> None:
    async with _completing(store, await _running(store, hand)) as connection:
        pass

    with pytest.raises(psycopg.OperationalError, match="closed"):
        await connection.execute("SELECT 1")


# --- waiting -----------------------------------------------------------------------------------


async def test_handler_waits_for_a_connection_without_limit(
    postgres_server: Postgres, store: PostgresStore, hand: Hand
) -> None:
    settings = PostgresSettings(
        dsn=postgres_server.dsn, schema=SCHEMA, pool=1, wait=timedelta(milliseconds=100)
    )
    async with PostgresStore(settings) as busy:
        fences = [await _running(busy, hand, str(n)) for n in range(3)]

        async def work(fence: Fence) -> None:
            async with _completing(busy, fence) as connection:
                await connection.execute("SELECT pg_sleep(0.3)")

        await asyncio.gather(*map(work, fences))

        assert [State.COMPLETED] * 3 == [await _state(busy, fence) for fence in fences]


async def test_handler_does_not_wait_for_an_unreachable_server(
    postgres_server: Postgres, store: PostgresStore, hand: Hand
) -> None:
    fence = await _running(store, hand)
    port = psycopg.conninfo.conninfo_to_dict(postgres_server.dsn)["port"]
    async with Proxy(int(port)) as proxy:
        dsn = postgres_server.dsn.replace(f":{port}/", f":{proxy.port}/")
        settings = PostgresSettings(dsn=dsn, schema=SCHEMA, wait=timedelta(milliseconds=300))
        unreachable = await PostgresStore(settings).start()

    with pytest.raises(StoreUnavailableError):
        await asyncio.wait_for(_completing(unreachable, fence).__aenter__(), 10)

    await unreachable.close()
