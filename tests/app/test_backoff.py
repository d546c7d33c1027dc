"""A task's own backoff function, and the end of a job's lifetime."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import pytest

from holdfast import (
    Holdfast,
    JobContext,
    RateLimitedError,
    State,
    SyncJobContext,
    TemporaryError,
    Worker,
)
from holdfast.model.policy import CustomDelay
from holdfast.runtime.clock import ManualClock
from tests.app.conftest import Drain
from tests.waiting import PATIENCE, forever
from tests.worker.rig import EventLog


@pytest.mark.req("M-7")
async def test_custom_backoff_computes_the_delay(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    @app.task("t", backoff=lambda attempt, first, most: timedelta(seconds=40 + attempt))
    async def fails() -> None:
        raise ValueError

    job_id = (await fails.submit()).job_id
    await drain()

    job = await app.get(job_id)
    assert clock.now() + timedelta(seconds=41) == job.scheduled_for


@pytest.mark.req("M-7")
async def test_custom_backoff_may_return_seconds(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    @app.task("t", backoff=lambda attempt, first, most: 40.5 + attempt)
    async def fails() -> None:
        raise ValueError

    job_id = (await fails.submit()).job_id
    await drain()

    assert clock.now() + timedelta(seconds=41.5) == (await app.get(job_id)).scheduled_for


def raises(*_: object) -> timedelta:
    raise RuntimeError("no idea, password=hunter2")


def returns_nothing(*_: object) -> timedelta:
    return None  # type: ignore[return-value]


@pytest.mark.req("M-7")
@pytest.mark.parametrize(
    ("backoff", "message"),
    [
        (raises, "RuntimeError('no idea, password=***"),
        (returns_nothing, "ValueError('must be seconds, a timedelta or"),
    ],
)
async def test_custom_backoff_that_fails_is_reported_and_the_job_is_retried(
    app: Holdfast, clock: ManualClock, backoff: CustomDelay, message: str
) -> None:
    @app.task("t", backoff=backoff)
    async def fails() -> None:
        raise ValueError

    events = EventLog()
    job_id = (await fails.submit()).job_id
    await Worker(app, maintenance=False, observer=events).run(burst=True)

    job = await app.get(job_id)
    assert (State.RETRYING, clock.now() + timedelta(seconds=1)) == (job.state, job.scheduled_for)
    assert job.failure is not None
    assert message in job.failure.context["backoff_error"]
    (reported,) = events.all("backoff.failed")
    assert (job_id, "t", 1) == (reported["job_id"], reported["type"], reported["attempt"])


@pytest.mark.req("M-6")
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_handler_is_stopped_when_the_lifetime_of_its_job_ends(
    live_app: Holdfast, kind: str
) -> None:
    deadlines: list[datetime] = []
    release = threading.Event()

    async def coroutine(ctx: JobContext) -> None:
        deadlines.append(ctx.deadline)
        await forever()

    def thread(ctx: SyncJobContext) -> None:
        deadlines.append(ctx.deadline)
        release.wait(PATIENCE)

    live_app.register("t", coroutine if kind == "coroutine" else thread, max_attempts=5)
    job_id = (await live_app.submit("t", lifetime=0.7)).job_id
    await Worker(live_app, maintenance=False).run(burst=True)
    release.set()

    job = await live_app.get(job_id)
    assert job.failure is not None
    assert (State.DEAD_LETTER, "LIFETIME_EXCEEDED", 1) == (
        job.state,
        job.failure.code,
        job.attempt,
    )
    lifetime = timedelta(seconds=0.7)
    assert [job.created_at + lifetime] == deadlines
    assert job.completed_at is not None
    assert job.completed_at - job.created_at < lifetime + timedelta(seconds=PATIENCE / 2)


@pytest.mark.req("M-11")
async def test_handler_can_wait_without_using_up_an_attempt(
    app: Holdfast, clock: ManualClock
) -> None:
    runs: list[int] = []

    @app.task("t", max_attempts=1)
    async def waits(ctx: JobContext) -> str:
        runs.append(ctx.attempt)
        if len(runs) < 3:
            raise TemporaryError("not yet", retry_after=60, uses_attempt=False)
        return "done"

    job_id = (await waits.submit()).job_id
    for _ in range(3):
        await Worker(app, maintenance=False).run(burst=True)
        clock.advance(60)
        await app.store.promote(10)

    job = await app.get(job_id)
    assert ([1, 1, 1], State.COMPLETED) == (runs, job.state)


@pytest.mark.req("M-11")
async def test_job_that_met_a_rate_limit_waits_without_using_up_an_attempt(
    app: Holdfast, clock: ManualClock
) -> None:
    runs: list[int] = []

    @app.task("t", max_attempts=1)
    async def limited(ctx: JobContext) -> str:
        runs.append(ctx.attempt)
        if len(runs) < 2:
            raise RateLimitedError("429 Too Many Requests", retry_after=0.3)
        return "done"

    job_id = (await limited.submit()).job_id
    await Worker(app, maintenance=False).run(burst=True)
    clock.advance(1)
    await app.store.promote(10)
    await Worker(app, maintenance=False).run(burst=True)

    job = await app.get(job_id)
    assert ([1, 1], State.COMPLETED) == (runs, job.state)


def test_a_rate_limit_needs_its_time() -> None:
    with pytest.raises(ValueError, match="retry_after must be given"):
        RateLimitedError("429", retry_after=None)  # type: ignore[arg-type]  # a wrong call
