"""What a worker keeps of a job that has ended: nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, JobContext, SyncJobContext
from tests.worker.rig import ended, until, working

JOBS = 5


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Only references count: a worker raises the collector's threshold, and jobs are large."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_worker_keeps_no_context_of_a_coroutine_that_ended() -> None:
    app = Holdfast("memory://")
    seen: list[weakref.ref[JobContext]] = []

    @app.task("keep")
    async def keep(ctx: JobContext) -> None:
        seen.append(weakref.ref(ctx))
        await ctx.report_progress(50)
        await ctx.log("INFO", "half")

    async with working(app):
        for _ in range(JOBS):
            await ended(app, (await keep.submit()).job_id)

        await until(lambda: not any(kept() for kept in seen))
    assert JOBS == len(seen)


async def test_a_worker_keeps_no_context_of_a_coroutine_that_failed() -> None:
    app = Holdfast("memory://")
    seen: list[weakref.ref[JobContext]] = []

    @app.task("fail", max_attempts=1)
    async def fail(ctx: JobContext) -> None:
        seen.append(weakref.ref(ctx))
        raise ValueError(ctx.job_id)

    async with working(app):
        for _ in range(JOBS):
            await ended(app, (await fail.submit()).job_id)

        await until(lambda: not any(kept() for kept in seen))
    assert JOBS == len(seen)


async def test_a_worker_keeps_no_context_of_a_thread_that_ended() -> None:
    app = Holdfast("memory://")
    seen: list[weakref.ref[SyncJobContext]] = []

    @app.task("keep")
    def keep(ctx: SyncJobContext) -> None:
        seen.append(weakref.ref(ctx))
        ctx.checkpoint({"at": 1})

    async with working(app):
        for _ in range(JOBS):
            await ended(app, (await keep.submit()).job_id)

        await until(lambda: not any(kept() for kept in seen))
    assert JOBS == len(seen)
