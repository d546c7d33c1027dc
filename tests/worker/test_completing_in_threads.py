"""Plain functions that complete their job in the transaction in which they write."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import (
    FailureCategory,
    Holdfast,
    JobContext,
    StaleLeaseError,
    State,
    SyncJobContext,
    Worker,
)
from tests.conformance.stores import empty_schema
from tests.worker.rig import PATIENCE, EventLog, ended, until, working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.model.status import JobStatus
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "threads"


@pytest.fixture
def app(postgres_server: Postgres) -> Holdfast:
    """An app with a single connection for handlers."""
    empty_schema(postgres_server.dsn, SCHEMA)
    return Holdfast(f"{postgres_server.dsn}?schema={SCHEMA}&durability=server&pool=1")


@pytest.fixture
def table(postgres_server: Postgres) -> Iterator[psycopg.Connection]:
    """A table that handlers write to."""
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS threaded")
        connection.execute("CREATE TABLE threaded (word text)")
        yield connection


def written(table: psycopg.Connection) -> list[str]:
    return [word for (word,) in table.execute("SELECT word FROM threaded ORDER BY word")]


def write(ctx: SyncJobContext, word: str) -> None:
    """Complete the job with a word in the table."""
    with ctx.transaction() as connection:
        connection.execute("INSERT INTO threaded VALUES (%s)", (word,))


async def run(
    app: Holdfast, handler: Callable[..., object], events: EventLog, **options: object
) -> JobStatus:
    """Run a job with this handler to its end."""
    app.task("job", max_attempts=2, **options)(handler)  # type: ignore[arg-type]  # any of them
    async with app:
        job = await app.submit("job", {})
        await Worker(app, observer=events).run(burst=True)
        return await app.get(job.job_id)


@pytest.mark.req("S-5", stores=["postgres"])
async def test_thread_completes_its_job_together_with_what_it_wrote(
    app: Holdfast, table: psycopg.Connection
) -> None:
    def work(ctx: SyncJobContext) -> None:
        with ctx.transaction() as connection:
            assert type(connection) is psycopg.Connection
            connection.execute("INSERT INTO threaded VALUES ('done')")
            ctx.report_progress(99)
            ctx.set_result("set")

    job = await run(app, work, events := EventLog())

    assert (State.COMPLETED, 1, "set") == (job.state, job.attempt, job.output)
    assert job.progress is not None
    assert 99 == job.progress.percent
    assert ["done"] == written(table)
    assert 1 == len(events.all("job.completed"))


@pytest.mark.parametrize("error", [FileNotFoundError, TimeoutError, KeyboardInterrupt])
async def test_what_a_thread_raises_in_its_block_undoes_it_and_passes_untouched(
    app: Holdfast, table: psycopg.Connection, error: type[BaseException]
) -> None:
    def work(ctx: SyncJobContext) -> None:
        with ctx.transaction() as connection:
            connection.execute("INSERT INTO threaded VALUES ('undone')")
            raise error("mine")

    job = await run(app, work, EventLog(), permanent=(error,))

    assert job.failure is not None
    assert (State.FAILED, error.__name__) == (job.state, job.failure.code)
    assert [] == written(table)


async def test_thread_may_roll_back_and_go_on(app: Holdfast, table: psycopg.Connection) -> None:
    def work(ctx: SyncJobContext) -> str:
        with ctx.transaction() as connection:
            connection.execute("INSERT INTO threaded VALUES ('undone')")
            raise psycopg.Rollback
        return "nothing to write"

    job = await run(app, work, EventLog())

    assert (State.COMPLETED, "nothing to write", []) == (job.state, job.output, written(table))


async def test_second_transaction_of_a_thread_is_refused_before_it_begins(
    app: Holdfast, table: psycopg.Connection
) -> None:
    def work(ctx: SyncJobContext) -> None:
        write(ctx, "first")
        write(ctx, "second")

    job = await run(app, work, events := EventLog())

    assert (State.COMPLETED, ["first"]) == (job.state, written(table))
    (line,) = events.all("job.afterwards")
    assert "was completed by its transaction" in str(line["error"])


@pytest.mark.req("S-5", stores=["postgres"])
async def test_thread_whose_lease_was_lost_writes_nothing(
    app: Holdfast, table: psycopg.Connection
) -> None:
    inside, go, errors = threading.Event(), threading.Event(), []

    @app.task("job", lease=60)
    def work(ctx: SyncJobContext) -> None:
        try:
            with ctx.transaction() as connection:
                connection.execute("INSERT INTO threaded VALUES ('stale')")
                inside.set()
                go.wait(PATIENCE)
        except StaleLeaseError as error:
            errors.append(error)
            raise

    async with working(app):
        job = await work.submit()
        await until(inside.is_set)
        table.execute(f"UPDATE {SCHEMA}.job SET lease_token = 'another'".encode())
        go.set()
        await until(lambda: errors)

        assert State.RUNNING is (await app.get(job.job_id)).state
    assert [] == written(table)


async def test_rows_of_a_thread_that_timed_out_are_unlocked_at_once(
    app: Holdfast, table: psycopg.Connection
) -> None:
    inside, go, errors = threading.Event(), threading.Event(), []

    @app.task("job", timeout=0.5, max_attempts=1)
    def work(ctx: SyncJobContext) -> None:
        try:
            with ctx.transaction() as connection:
                connection.execute("LOCK TABLE threaded")
                inside.set()
                go.wait(PATIENCE)
                connection.execute("INSERT INTO threaded VALUES ('late')")
        except Exception as error:
            errors.append(error)
            raise

    @app.task("next")
    def following(ctx: SyncJobContext) -> None:
        write(ctx, "next")

    async with working(app, observer=(events := EventLog())):
        job = await work.submit()
        assert State.DEAD_LETTER is await ended(app, job.job_id)
        await events.wait_for("thread.leaked")
        following_job = await following.submit()  # needs the connection and the table

        assert State.COMPLETED is await ended(app, following_job.job_id)
        go.set()
        await until(lambda: errors)
    assert ["next"] == written(table)


async def test_query_of_a_thread_that_timed_out_is_cancelled(
    app: Holdfast, table: psycopg.Connection
) -> None:
    table.execute("INSERT INTO threaded VALUES ('row')")

    @app.task("job", timeout=0.5, max_attempts=2, backoff=lambda *_: timedelta(0))
    def work(ctx: SyncJobContext) -> None:
        with ctx.transaction() as connection:
            connection.execute("UPDATE threaded SET word = 'changed'")
            if ctx.attempt == 1:
                connection.execute("SELECT pg_sleep(20)")

    async with working(app):
        job = await work.submit()

        assert State.COMPLETED is await ended(app, job.job_id)
    assert ["changed"] == written(table)


@pytest.mark.usefixtures("table")
async def test_thread_that_timed_out_while_it_waited_takes_no_connection(app: Holdfast) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    @app.task("first")
    async def first(ctx: JobContext) -> None:
        async with ctx.transaction():
            inside.set()
            await go.wait()

    @app.task("second", timeout=0.3, max_attempts=1)
    def second(ctx: SyncJobContext) -> None:
        write(ctx, "second")

    @app.task("third")
    def third(ctx: SyncJobContext) -> None:
        write(ctx, "third")

    async with working(app):
        held = await first.submit()
        await inside.wait()
        late = await second.submit()
        assert State.DEAD_LETTER is await ended(app, late.job_id)
        go.set()
        assert State.COMPLETED is await ended(app, held.job_id)
        job = await third.submit()

        assert State.COMPLETED is await ended(app, job.job_id)


# --- where there can be none -------------------------------------------------------------------


async def test_coroutine_that_forgets_async_gets_an_error_that_names_it(app: Holdfast) -> None:
    async def work(ctx: JobContext) -> None:
        with ctx.transaction():  # type: ignore[attr-defined]  # which is the mistake
            pass

    job = await run(app, work, EventLog())

    assert job.failure is not None
    assert (State.FAILED, FailureCategory.PERMANENT) == (job.state, job.failure.category)
    assert "needs 'async with' in a coroutine" in job.failure.message


async def test_plain_context_with_async_gets_an_error_that_names_it(app: Holdfast) -> None:
    def work(ctx: SyncJobContext) -> None:
        async def write() -> None:
            async with ctx.transaction():  # type: ignore[attr-defined]  # which is the mistake
                pass

        asyncio.run(write())

    job = await run(app, work, EventLog())

    assert job.failure is not None
    assert (State.FAILED, FailureCategory.PERMANENT) == (job.state, job.failure.category)
    assert "needs 'with' where the context is a SyncJobContext" in job.failure.message


async def _open(ctx: JobContext) -> None:
    async with ctx.transaction():
        pass


def _open_plainly(ctx: SyncJobContext) -> None:
    with ctx.transaction():
        pass


@pytest.mark.parametrize("handler", [_open, _open_plainly])
async def test_store_without_transactions_fails_the_job_once(
    handler: Callable[..., object],
) -> None:
    job = await run(Holdfast("memory://"), handler, EventLog())

    assert job.failure is not None
    assert (State.FAILED, FailureCategory.PERMANENT) == (job.state, job.failure.category)
    assert "needs a worker whose store shares your database: postgresql://" in (job.failure.message)
