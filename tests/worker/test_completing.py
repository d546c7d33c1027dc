"""Jobs that are completed by the transaction in which their handler writes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast, JobContext, PermanentError, State, StoreUnavailableError, Worker
from holdfast.store.postgres import PostgresStore
from tests.conformance.stores import empty_schema
from tests.proxy import Proxy
from tests.worker.rig import EventLog, ended, working

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from holdfast.model.status import JobStatus
    from holdfast.store import JobNote
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "completed"


@pytest.fixture
def app(postgres_server: Postgres) -> Holdfast:
    empty_schema(postgres_server.dsn, SCHEMA)
    return Holdfast(f"{postgres_server.dsn}?schema={SCHEMA}&durability=server")


@pytest.fixture
def table(postgres_server: Postgres) -> Iterator[psycopg.Connection]:
    """A table that handlers write to."""
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS written")
        connection.execute("CREATE TABLE written (word text)")
        yield connection


def written(table: psycopg.Connection) -> list[str]:
    return [word for (word,) in table.execute("SELECT word FROM written ORDER BY word")]


async def run(
    app: Holdfast, handler: Callable[..., Awaitable[object]], events: EventLog
) -> JobStatus:
    """Run a job with this handler to its end."""
    app.task("job", max_attempts=1)(handler)
    async with app:
        job = await app.submit("job", {})
        await Worker(app, observer=events).run(burst=True)
        return await app.get(job.job_id)


async def write(ctx: JobContext, word: str) -> None:
    """Complete the job with a word in the table."""
    async with ctx.transaction() as connection:
        await connection.execute("INSERT INTO written VALUES (%s)", (word,))


async def test_second_transaction_of_a_completed_job_is_refused_before_it_begins(
    app: Holdfast, table: psycopg.Connection
) -> None:
    async def twice(ctx: JobContext) -> None:
        await write(ctx, "first")
        await write(ctx, "second")

    job = await run(app, twice, events := EventLog())

    assert (State.COMPLETED, ["first"]) == (job.state, written(table))
    (line,) = events.all("job.afterwards")
    assert "was completed by its transaction" in str(line["error"])


async def test_transaction_inside_a_transaction_is_refused_before_it_begins(
    app: Holdfast, table: psycopg.Connection
) -> None:
    async def nested(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO written VALUES ('outer')")
            with pytest.raises(PermanentError, match="is open already"):
                await write(ctx, "inner")

    job = await run(app, nested, EventLog())

    assert (State.COMPLETED, ["outer"]) == (job.state, written(table))


async def test_block_that_failed_may_be_tried_again_in_the_same_attempt(
    app: Holdfast, table: psycopg.Connection
) -> None:
    async def insist(ctx: JobContext) -> None:
        with contextlib.suppress(ZeroDivisionError):
            async with ctx.transaction() as connection:
                await connection.execute("INSERT INTO written VALUES ('first')")
                raise ZeroDivisionError
        await write(ctx, "second")

    job = await run(app, insist, EventLog())

    assert (State.COMPLETED, ["second"]) == (job.state, written(table))


async def test_rolled_back_block_leaves_the_job_to_its_handler(
    app: Holdfast, table: psycopg.Connection
) -> None:
    async def think_again(ctx: JobContext) -> str:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO written VALUES ('undone')")
            raise psycopg.Rollback
        return "nothing to write"

    job = await run(app, think_again, EventLog())

    assert (State.COMPLETED, "nothing to write", []) == (job.state, job.output, written(table))


@pytest.mark.parametrize(
    "call",
    [
        lambda ctx: ctx.spawn("other", {}),
        lambda ctx: ctx.checkpoint(1),
        lambda ctx: ctx.update_payload(None),
        lambda ctx: ctx.report_progress(100),
        lambda ctx: ctx.log("INFO", "late"),
    ],
    ids=["spawn", "checkpoint", "update_payload", "report_progress", "log"],
)
@pytest.mark.usefixtures("table")
async def test_nothing_more_is_written_for_a_completed_job(
    app: Holdfast, call: Callable[[JobContext], Awaitable[object]]
) -> None:
    async def late(ctx: JobContext) -> None:
        await write(ctx, "done")
        await call(ctx)

    job = await run(app, late, events := EventLog())

    assert State.COMPLETED is job.state
    (line,) = events.all("job.afterwards")
    assert "was completed by its transaction" in str(line["error"])


@pytest.mark.usefixtures("table")
async def test_completion_is_reported_as_usual_and_written_once(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def done(ctx: JobContext) -> None:
        await write(ctx, "done")

    events, answers = EventLog(), []
    monkeypatch.setattr(PostgresStore, "swap", lambda *given: answers.append(given))
    job = await run(app, done, events)

    (line,) = events.all("job.completed")
    assert job.job_id == line["job_id"]
    assert isinstance(line["seconds"], float)
    assert [] == answers == events.all("job.stale")


@pytest.mark.usefixtures("table")
async def test_job_that_waits_for_one_completed_by_its_transaction_follows_at_once(
    app: Holdfast, table: psycopg.Connection
) -> None:
    @app.task("first")
    async def first(ctx: JobContext) -> None:
        await write(ctx, "first")

    @app.task("second")
    async def second() -> None: ...

    async with working(app, maintenance=False):  # which would look for it now and then
        _, last = await app.chain(first.submission(), second.submission())

        assert State.COMPLETED is await ended(app, last.job_id)


async def test_error_after_the_block_is_reported_and_changes_nothing(app: Holdfast) -> None:
    async def stumble(ctx: JobContext) -> None:
        await write(ctx, "done")
        raise ValueError("too late")

    job = await run(app, stumble, events := EventLog())

    assert State.COMPLETED is job.state
    (line,) = events.all("job.afterwards")
    assert "too late" in str(line["error"])
    assert 1 == len(events.all("job.completed"))


@pytest.mark.usefixtures("table")
async def test_result_set_before_the_end_of_the_block_is_stored(app: Holdfast) -> None:
    async def answer(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            cursor = await connection.execute("SELECT 6 * 7")
            ctx.set_result({"answer": (await cursor.fetchone())[0]})

    job = await run(app, answer, events := EventLog())

    assert (State.COMPLETED, {"answer": 42}) == (job.state, job.output)
    assert [] == events.all("job.afterwards")


async def test_result_that_cannot_be_kept_is_refused_where_it_is_set(
    app: Holdfast, table: psycopg.Connection
) -> None:
    async def answer(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO written VALUES ('undone')")
            ctx.set_result(object())

    job = await run(app, answer, EventLog())

    assert job.failure is not None
    assert (State.FAILED, "RESULT_INVALID") == (job.state, job.failure.code)
    assert [] == written(table)


@pytest.mark.usefixtures("table")
async def test_value_returned_after_the_block_is_reported_as_not_kept(app: Holdfast) -> None:
    async def answer(ctx: JobContext) -> str:
        await write(ctx, "done")
        return "unheard"

    job = await run(app, answer, events := EventLog())

    assert (State.COMPLETED, None) == (job.state, job.output)
    (line,) = events.all("job.afterwards")
    assert "ctx.set_result()" in str(line["error"])
    assert "unheard" not in str(line)


@pytest.mark.usefixtures("table")
async def test_handler_that_goes_on_after_its_block_is_left_alone(app: Holdfast) -> None:
    lost: list[bool] = []

    @app.task("job", lease=1)
    async def tidy_up(ctx: JobContext) -> None:
        await write(ctx, "done")
        await asyncio.sleep(1.5)  # longer than the lease: several beats
        lost.append(ctx.lease_lost)

    async with working(app, observer=(events := EventLog())):
        job = await tidy_up.submit()
        await events.wait_for("job.completed")
        assert State.COMPLETED is await ended(app, job.job_id)

    assert [False] == lost
    assert [] == events.all("job.lease_lost") == events.all("job.afterwards")


@pytest.mark.usefixtures("table")
async def test_progress_reported_last_in_the_block_is_kept(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = PostgresStore.note

    async def note_slowly(store: PostgresStore, notes: Sequence[JobNote]) -> list[bool]:
        await asyncio.sleep(0.3)  # a slow store
        return await note(store, notes)

    monkeypatch.setattr(PostgresStore, "note", note_slowly)

    async def report(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO written VALUES ('done')")
            await ctx.report_progress(99, "nearly")

    job = await run(app, report, EventLog())

    assert job.progress is not None
    assert (State.COMPLETED, 99) == (job.state, job.progress.percent)


async def test_commit_whose_answer_is_lost_counts_once(
    app: Holdfast, postgres_server: Postgres, table: psycopg.Connection
) -> None:
    port = psycopg.conninfo.conninfo_to_dict(postgres_server.dsn)["port"]
    events, seen = EventLog(), []
    async with Proxy(int(port)) as proxy:
        far = Holdfast(app.url.replace(f":{port}/", f":{proxy.port}/"))

        async def unlucky(ctx: JobContext) -> None:
            try:
                async with ctx.transaction() as connection:
                    await connection.execute("INSERT INTO written VALUES ('once')")
                    proxy.cut_after(b"COMMIT\0")
            except StoreUnavailableError as error:
                seen.append(error)
                proxy.heal()
                raise

        job = await run(far, unlucky, events)

    assert 1 == len(seen)
    assert (State.COMPLETED, ["once"]) == (job.state, written(table))
    assert [] == events.all("job.stale")
