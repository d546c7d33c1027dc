"""Calls that are right: a type checker has nothing to say about this file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import assert_type

from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow

from holdfast import (
    AttemptCall,
    AttemptOutcome,
    Depends,
    Holdfast,
    JobContext,
    JobStatus,
    Middleware,
    Submission,
    SubmissionResult,
    SyncJobContext,
    Task,
    Worker,
    current_job,
)
from holdfast.testing import CrashReport, Rehearsal, Sandbox, crash_points, crash_points_sync

app = Holdfast("memory://")


@app.task("email.send", max_attempts=5, timeout=30)
async def send_email(ctx: JobContext, to: str, subject: str = "hello") -> dict[str, str]:
    await ctx.report_progress(50, "half")
    return {"to": to, "subject": subject}


@app.task("report.build", runner="process")
def build_report(ctx: SyncJobContext, year: int, *, pages: int = 1) -> int:
    ctx.checkpoint({"page": pages})
    return year


@app.task("ping")
async def ping() -> str:
    return "pong"


@app.task("square")
def square(number: int) -> int:
    return number * number


@app.cron("*/5 * * * *", tz="Europe/Berlin")
@app.task("tidy")
async def tidy(ctx: JobContext) -> None:
    await ctx.log("INFO", "tidied")


@app.task("account.charge")
async def charge(ctx: JobContext, cents: int) -> None:
    async with ctx.transaction() as connection:
        assert_type(connection, AsyncConnection[TupleRow])
        await connection.execute("UPDATE account SET cents = cents - %s", (cents,))
        ctx.set_result(cents)


@app.task("account.refund")
def refund(ctx: SyncJobContext, cents: int) -> None:
    with ctx.transaction() as connection:
        assert_type(connection, Connection[TupleRow])
        connection.execute("UPDATE account SET cents = cents + %s", (cents,))
        ctx.set_result(cents)


@app.task
async def bare(ctx: JobContext, number: int) -> str:
    return str(number)


@app.task
def plain(number: int) -> int:
    return number


@app.task("new.name")
@app.task("old.name", max_attempts=1)
def renamed(ctx: SyncJobContext, number: int) -> int:
    return number


app.register("pong", ping.function, timeout="PT5S", max_attempts=2, concurrency=3)


async def submit_named() -> None:
    assert_type(await bare(3), str)
    assert_type(await bare.submit(3), SubmissionResult)
    assert_type(await plain.submit(number=3), SubmissionResult)
    assert_type(await renamed.submit(number=3), SubmissionResult)
    assert_type(renamed(3), int)


async def submit() -> None:
    assert_type(await send_email.submit("a@b.c"), SubmissionResult)
    assert_type(await send_email.submit(to="a@b.c", subject="hi"), SubmissionResult)
    assert_type(await send_email.using(delay=60, priority="HIGH").submit(to="a"), SubmissionResult)
    assert_type(await build_report.submit(2026, pages=3), SubmissionResult)
    assert_type(await ping.submit(), SubmissionResult)
    assert_type(await tidy.submit(), SubmissionResult)
    assert_type(build_report.submit_sync(year=2026), SubmissionResult)
    assert_type(square.using(timeout=timedelta(seconds=1)).submit_sync(2), SubmissionResult)
    assert_type(
        await ping.using(callback_url=None, delay=None, tags=None).submit(), SubmissionResult
    )
    assert_type(await app.submit("ping", priority=None, timeout=None), SubmissionResult)
    assert_type(await app.wait("id", timeout=1), JobStatus)
    assert_type(await square.result("id", timeout=1), int)
    assert_type(await bare.result(await bare.submit(3)), str)
    assert_type(square.result_sync(square.submit_sync(2)), int)
    assert_type(bare.using(delay=1).result_sync("id"), str)


async def call() -> None:
    assert_type(await send_email("a@b.c", subject="hi"), dict[str, str])
    assert_type(build_report(2026, pages=2), int)
    assert_type(await ping(), str)
    assert_type(square(3), int)


def pass_on(task: Task[[int], int]) -> int:
    return task(2)


pass_on(square)


def reset(box: Sandbox) -> None:
    box.assert_not_submitted()


def charged_once(box: Sandbox) -> bool:
    return len(box.submitted(charge)) == 1


async def charged_once_async(box: Sandbox) -> None:
    box.assert_submitted(charge, cents=5)


async def crash() -> None:
    report = await crash_points(charge, 5, prepare=reset, check=charged_once)
    assert_type(report, CrashReport)
    await crash_points(charge, cents=5, check=charged_once_async, effects=["shop.bank.charge"])
    await crash_points(square, number=2, check=lambda box: None)
    crash_points_sync(build_report, year=2026, check=charged_once).assert_idempotent()


async def rehearse() -> None:
    assert_type(await Rehearsal(ping)(), str)
    assert_type(Rehearsal(square, attempt=2)(3), int)


async def spawn(ctx: JobContext, sync: SyncJobContext) -> None:
    assert_type(await ctx.spawn(square.submission(2), key="two"), str)
    assert_type(await ctx.spawn(square.using(priority="LOW").submission(2), delay=60), str)
    assert_type(await ctx.spawn(square.using(priority="LOW"), {"number": 2}), str)
    assert_type(await ctx.spawn("square", {"number": 2}, idempotency_key="two"), str)
    assert_type(sync.spawn(Submission(type="ping")), str)
    assert_type(sync.spawn(square, {"number": 2}, tags={"a": "b"}), str)
    assert_type(sync.spawn("ping"), str)


@app.lifespan
async def pool(given: Holdfast) -> AsyncIterator[dict[str, int]]:
    yield {}


@app.task("store", version=2, upgrades={1: dict[str, int]}, aliases=["keep"], on_mismatch="fail")
async def store(number: int, *, pool: dict[str, int] = Depends(pool)) -> int:
    return number + len(pool)


class Timing(Middleware):
    """Both methods, with the types of their parameters."""

    async def submitting(self, submission: Submission) -> Submission:
        return submission

    @contextmanager
    def attempt(self, call: AttemptCall) -> Generator[None, None, None]:
        yield
        assert_type(call.outcome, AttemptOutcome | None)


async def seams() -> None:
    assert_type(app.middleware(Timing()), Timing)
    job = await store.submit(3)
    assert_type(await store.result(job), int)
    if (running := current_job()) is not None:
        assert_type(running.job_id, str)
    with app.override(pool, dict[str, int]):
        assert_type(await store(3), int)
    async with Worker(app) as worker:
        assert_type(worker, Worker)
