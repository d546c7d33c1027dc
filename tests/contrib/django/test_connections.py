"""A database connection that dies between two jobs fails none of them."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdfast import State, Worker
from holdfast.contrib.django import app
from holdfast.contrib.django.configuration import store_url
from holdfast.runtime.event_loop import run
from tests.contrib.shop import tasks

pytestmark = pytest.mark.postgres
TASKS = [tasks.connection_pid, tasks.connection_pid_async, tasks.connection_pid_in_process]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=lambda task: str(task.type))
def test_connection_that_the_server_closes_between_jobs_fails_none(
    postgres_project: str, task: tasks.PidTask
) -> None:
    async def scenario() -> list[int]:
        worker = Worker(app, slots=1)
        working = asyncio.create_task(worker.run())
        pids = []
        for _ in range(3):
            job = await task.using(max_attempts=1).submit(alias=postgres_project)
            done = await app.wait(job.job_id, timeout=30)
            assert State.COMPLETED == done.state, done.failure
            pids.append(int(str(done.output)))
            await _close_all()
        await _stop(worker, working)
        return pids

    async def with_app() -> list[int]:
        async with app:
            return await scenario()

    assert 3 == len(set(run(with_app())))


def test_connection_that_is_in_order_is_kept_for_the_next_job(postgres_project: str) -> None:
    async def scenario() -> set[object]:
        async with app:
            worker = Worker(app, slots=1)
            working = asyncio.create_task(worker.run())
            jobs = [await tasks.connection_pid.submit(alias=postgres_project) for _ in range(3)]
            done = [await app.wait(job.job_id, timeout=30) for job in jobs]
            await _stop(worker, working)
            return {job.output for job in done}

    assert 1 == len(run(scenario()))


async def _stop(worker: Worker, working: asyncio.Task[None]) -> None:
    last = await tasks.close_connections.submit()
    await app.wait(last.job_id, timeout=30)
    worker.stop()
    await working


async def _close_all() -> None:
    """Close the connections of Django at the server, those of the store excepted."""
    own = "application_name NOT LIKE '%%holdfast%%' AND pid <> pg_backend_pid()"
    async with await psycopg.AsyncConnection.connect(store_url(), autocommit=True) as admin:
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = current_database() AND {own}".replace("%%", "%")
        )
