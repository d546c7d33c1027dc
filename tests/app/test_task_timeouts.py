"""The timeout of a task applies in the worker, whichever process submitted the job."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast import FailureCategory, Holdfast, JobContext, Limits, State, SyncJobContext, Worker
from holdfast.errors import ValidationError
from holdfast.tasks.registry import HandlerOptions
from tests.conformance.stores import Place
from tests.waiting import forever

MOST = 5.0
"""Seconds within which an attempt with a timeout of 0.2 s must have ended."""


@contextlib.asynccontextmanager
async def two_apps(place: Place, limits: Limits | None = None) -> AsyncIterator[list[Holdfast]]:
    """An app that submits and knows no task, and the one of a worker."""
    submitter = Holdfast(store=place.open())
    worker = Holdfast(store=place.open(), limits=limits)
    async with submitter, worker:
        yield [submitter, worker]


async def timed_out(submitter: Holdfast, job_id: str) -> bool:
    details = await submitter.failure(job_id)
    assert details.failure is not None
    return (
        FailureCategory.TIMEOUT is details.failure.category
        and "execution took longer than 0.2 s" == details.failure.message
    )


@pytest.mark.req("M-6")
async def test_a_coroutine_ends_at_the_timeout_of_its_task(place: Place) -> None:
    async with two_apps(place) as (submitter, app):
        left = []

        @app.task("sleep", timeout=0.2)
        async def sleep(ctx: JobContext) -> None:
            left.append(ctx.deadline - app.store.now())
            await forever()

        job = await submitter.submit("sleep", max_attempts=1, timeout=60)
        started = time.monotonic()
        await Worker(app).run(burst=True)

        assert State.DEAD_LETTER is (await submitter.get(job.job_id)).state
        assert await timed_out(submitter, job.job_id)
        assert MOST > time.monotonic() - started
        assert timedelta(seconds=0.2) >= left[0]


@pytest.mark.req("M-6")
async def test_a_thread_is_fenced_at_the_timeout_of_its_task(place: Place) -> None:
    async with two_apps(place) as (submitter, app):
        over, left = threading.Event(), []

        @app.task("block", timeout=0.2)
        def block(ctx: SyncJobContext) -> None:
            left.append(ctx.deadline - app.store.now())
            over.wait(MOST)

        job = await submitter.submit("block", max_attempts=1)
        await Worker(app).run(burst=True)
        over.set()

        assert State.DEAD_LETTER is (await submitter.get(job.job_id)).state
        assert await timed_out(submitter, job.job_id)
        assert timedelta(seconds=0.2) >= left[0]


@pytest.mark.req("M-6")
async def test_the_limit_of_the_workers_system_applies(place: Place) -> None:
    async with two_apps(place, Limits(timeout=timedelta(seconds=0.2))) as (submitter, app):

        @app.task("sleep")
        async def sleep() -> None:
            await forever()

        job = await submitter.submit("sleep", max_attempts=1)
        await Worker(app).run(burst=True)

        assert await timed_out(submitter, job.job_id)


@pytest.mark.req("M-6")
async def test_the_shorter_timeout_of_a_job_applies(place: Place) -> None:
    async with two_apps(place) as (submitter, app):

        @app.task("sleep", timeout=60)
        async def sleep() -> None:
            await forever()

        job = await submitter.submit("sleep", max_attempts=1, timeout=0.2)
        await Worker(app).run(burst=True)

        assert await timed_out(submitter, job.job_id)


@pytest.mark.req("M-6", "A-17")
def test_a_task_may_not_request_more_than_the_system_allows() -> None:
    app = Holdfast("memory://", limits=Limits(timeout=timedelta(minutes=1)))

    with pytest.raises(ValidationError, match=r"timeout must not exceed the system's 60 s"):
        app.task("slow", timeout=61)(forever)
    result = app.register("slow", forever, options=HandlerOptions(timeout=timedelta(seconds=61)))

    assert "INVALID" == result.status
    assert "(Limits.timeout), got 61 s" in result.message
    assert (
        "REGISTERED"
        == app.register(
            "slow", forever, options=HandlerOptions(timeout=timedelta(seconds=60))
        ).status
    )
