"""Jobs that are submitted and completed in the caller's own database transaction."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast, JobContext, NotFoundError, State, ValidationError, Worker
from tests.worker.rig import working

if TYPE_CHECKING:
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres


def app_on(server: Postgres, schema: str) -> Holdfast:
    return Holdfast(f"{server.dsn}?schema={schema}&durability=server")


async def made(server: Postgres, table: str) -> None:
    """Make a table that a handler writes to."""
    async with await psycopg.AsyncConnection.connect(server.dsn) as connection:
        await connection.execute(f"CREATE TABLE IF NOT EXISTS {table}".encode())


@pytest.mark.req("A-1", "S-1")
async def test_submission_commits_and_rolls_back_with_the_callers_transaction(
    postgres_server: Postgres,
) -> None:
    app = app_on(postgres_server, "enlisted")

    @app.task("greet")
    async def greet(name: str) -> str:
        return name

    connection = await psycopg.AsyncConnection.connect(postgres_server.dsn)
    async with app, connection:
        dropped = await app.submit("greet", {"name": "a"}, connection=connection)
        await connection.rollback()
        kept = await greet.using(connection=connection).submit(name="b")
        await connection.commit()

        assert State.SCHEDULED is (await app.get(kept.job_id)).state
        with pytest.raises(NotFoundError):
            await app.get(dropped.job_id)


@pytest.mark.req("S-5", "A-18")
async def test_job_completes_together_with_the_writes_of_its_handler(
    postgres_server: Postgres,
) -> None:
    app = app_on(postgres_server, "enlisted")
    await made(postgres_server, "counted (name text)")

    @app.task("count", queue="counting")
    async def count(ctx: JobContext, name: str) -> None:
        async with ctx.transaction() as connection:
            assert isinstance(connection, psycopg.AsyncConnection)
            await connection.execute("INSERT INTO counted VALUES (%s)", (name,))

    async with app:
        job = await count.submit(name="one")
        await Worker(app, queues=["counting"]).run(burst=True)

        assert State.COMPLETED is (await app.get(job.job_id)).state
    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as connection:
        rows = await (await connection.execute("SELECT name FROM counted")).fetchall()
    assert [("one",)] == rows


async def test_error_of_the_handler_in_its_transaction_is_reported_unchanged(
    postgres_server: Postgres,
) -> None:
    app = app_on(postgres_server, "enlisted")
    await made(postgres_server, "single (name text PRIMARY KEY)")

    @app.task("insist", queue="insisting", max_attempts=1)
    async def insist(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            assert isinstance(connection, psycopg.AsyncConnection)
            await connection.execute("INSERT INTO single VALUES ('one'), ('one')")

    async with app:
        job = await insist.submit()
        await Worker(app, queues=["insisting"]).run(burst=True)
        failure = (await app.get(job.job_id)).failure

    assert failure is not None
    assert "UniqueViolation" == failure.code
    assert "duplicate key" in failure.message


async def test_more_handlers_than_connections_all_complete_in_their_first_attempt(
    postgres_server: Postgres,
) -> None:
    app = Holdfast(f"{postgres_server.dsn}?schema=enlisted&durability=server&wait=1")

    @app.task("dawdle", queue="dawdling")
    async def dawdle(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("SELECT pg_sleep(0.5)")

    async with app:
        jobs = await app.submit_batch([dawdle.submission() for _ in range(40)])
        await Worker(app, queues=["dawdling"]).run(burst=True)
        ended = [await app.get(job.job_id) for job in jobs.results]

    assert {(State.COMPLETED, 1)} == {(job.state, job.attempt) for job in ended}


async def test_store_without_transactions_refuses_a_connection() -> None:
    async with Holdfast("memory://") as app:
        with pytest.raises(ValidationError, match="connection needs a store that shares"):
            await app.submit("greet", connection=object())


async def test_workflow_is_submitted_in_one_transaction(postgres_server: Postgres) -> None:
    app = app_on(postgres_server, "enlisted")

    @app.task("step", queue="steps")
    async def step(ctx: JobContext) -> list[object]:
        return [ctx.job_id, *(await ctx.dependency_results()).values()]

    async with app, await psycopg.AsyncConnection.connect(postgres_server.dsn) as connection:
        before = await step.submit()
        await Worker(app, queues=["steps"]).run(burst=True)
        outside = await step.using(connection=connection, depends_on=[before.job_id]).submit()
        inside = await step.using(connection=connection, depends_on=[outside.job_id]).submit()
        _, last = await app.chain(step.submission(), step.submission(), connection=connection)
        await connection.commit()
        await Worker(app, queues=["steps"]).run(burst=True)

        ends = [await app.get(job.job_id) for job in (outside, inside, last)]

    assert [State.COMPLETED] * 3 == [end.state for end in ends]
    assert [outside.job_id, [before.job_id]] == ends[0].output
    assert [inside.job_id, ends[0].output] == ends[1].output


async def test_waiting_for_a_job_does_not_wait_for_unrelated_transactions(
    postgres_server: Postgres,
) -> None:
    app = app_on(postgres_server, "enlisted")

    @app.task("noop", queue="awaited")
    async def noop() -> str:
        return "done"

    async with app, await psycopg.AsyncConnection.connect(postgres_server.dsn) as stranger:
        await stranger.execute("SELECT pg_current_xact_id()")
        job = await noop.submit()
        waiting = asyncio.create_task(app.wait(job.job_id, timeout=30))
        await asyncio.wait([waiting], timeout=0.1)
        begun = time.monotonic()
        await Worker(app, queues=["awaited"]).run(burst=True)

        assert "done" == (await waiting).output

    assert time.monotonic() - begun < 3


async def test_job_that_does_not_end_in_time_is_reported_with_its_state(
    postgres_server: Postgres,
) -> None:
    async with app_on(postgres_server, "enlisted") as app:
        job = await app.submit("nobody", queue="nowhere")

        with pytest.raises(TimeoutError, match=f"{job.job_id} is SCHEDULED after 0.1 s"):
            await app.wait(job.job_id, timeout=0.1)


async def test_end_of_a_fast_job_is_noticed_fast(postgres_server: Postgres) -> None:
    app = app_on(postgres_server, "enlisted")

    @app.task("quick", queue="quick")
    async def quick() -> None: ...

    async with working(app, queues=["quick"]):
        spans = []
        for _ in range(9):
            begun = time.monotonic()
            await app.wait((await quick.submit()).job_id, timeout=30)
            spans.append(time.monotonic() - begun)

    assert sorted(spans)[4] < 0.08
