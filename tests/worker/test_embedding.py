"""A worker inside another program: ``async with Worker(app)``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast import Holdfast, State, Worker
from tests.worker.rig import until_running


async def test_jobs_run_while_the_block_lasts() -> None:
    app = Holdfast("memory://")

    @app.task
    async def work() -> str:
        return "done"

    async with Worker(app):
        job = await work.submit()
        assert "done" == await work.result(job, timeout=15)

    with pytest.raises(RuntimeError, match="not started"):
        await work.submit()


async def test_the_end_of_the_block_lets_running_jobs_finish() -> None:
    app, go = Holdfast("memory://"), asyncio.Event()

    @app.task
    async def work() -> None:
        await go.wait()

    async with app:
        async with Worker(app):
            job = await work.submit()
            await until_running(app, job.job_id)
            asyncio.get_running_loop().call_later(0.05, go.set)
        state = (await app.get(job.job_id)).state

    assert State.COMPLETED is state


async def test_an_exception_in_the_block_returns_running_jobs() -> None:
    app = Holdfast("memory://")

    @app.task
    async def work() -> None:
        await asyncio.Event().wait()

    async with app:
        job = await work.submit()
        with contextlib.suppress(ZeroDivisionError):
            async with Worker(app, grace=timedelta(minutes=1)):
                await until_running(app, job.job_id)
                raise ZeroDivisionError
        status = await app.get(job.job_id)

    assert (State.SCHEDULED, 0) == (status.state, status.attempt)


async def test_what_keeps_a_worker_from_starting_is_raised_at_once() -> None:
    app = Holdfast("memory://")

    @app.lifespan
    async def broken() -> AsyncIterator[None]:
        raise ConnectionError("no database")
        yield

    with pytest.raises(ConnectionError, match="no database"):
        async with Worker(app):
            raise AssertionError("must not start")


async def test_a_worker_runs_once() -> None:
    worker = Worker(Holdfast("memory://"))
    async with worker:
        pass

    with pytest.raises(RuntimeError, match="runs once"):
        async with worker:
            pass
