"""Stopping a worker: nothing is lost, and no attempt is used up by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast import Holdfast, JobContext, LimitRule, State
from holdfast.model.job import Event
from holdfast.operations.workers import workers
from holdfast.store import MemoryStore
from holdfast.worker import Worker
from tests.conformance.stores import PLACES
from tests.waiting import eventually
from tests.worker.faulty import FaultyStore
from tests.worker.rig import EventLog, ended, until, until_running


class Site:
    """An app with one task that waits until a test lets it finish."""

    def __init__(self, store: object = None, url: str = "") -> None:
        self.app = Holdfast(url) if url else Holdfast(store=store or MemoryStore())  # type: ignore[arg-type]
        self.go = asyncio.Event()
        self.ran: list[str] = []

        @self.app.task("wait")
        async def wait(ctx: JobContext) -> None:
            await self.go.wait()
            self.ran.append(ctx.job_id)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    if request.param == "memory":
        yield Site()
        return
    with PLACES[request.param](request) as place:
        yield Site(url=place.url)


async def test_a_first_stop_lets_running_jobs_finish_and_claims_no_more(site: Site) -> None:
    async with site.app as app:
        worker = Worker(app, slots=1)
        task = asyncio.create_task(worker.run())
        first, second = await app.submit("wait"), await app.submit("wait")
        await until_running(app, first.job_id)

        worker.stop()
        site.go.set()
        await asyncio.wait_for(task, 5)

        assert State.COMPLETED is (await app.get(first.job_id)).state
        assert State.SCHEDULED is (await app.get(second.job_id)).state


@pytest.mark.req("S-10")
async def test_after_the_grace_period_jobs_return_to_the_queue_without_losing_an_attempt(
    site: Site,
) -> None:
    async with site.app as app:
        worker = Worker(app, grace=timedelta(seconds=0.2))
        task = asyncio.create_task(worker.run())
        job = await app.submit("wait")
        await until_running(app, job.job_id)
        began = time.monotonic()

        worker.stop()
        await asyncio.wait_for(task, 5)

        status = await app.get(job.job_id, include_history=True)
        assert 0.2 <= time.monotonic() - began < 1.5
        assert (State.SCHEDULED, 0) == (status.state, status.attempt)
        assert status.history is not None
        assert [Event.GIVE_BACK, Event.DUE] == [edge.event for edge in status.history][-2:]


async def test_a_second_stop_does_not_wait_for_the_grace_period(site: Site) -> None:
    async with site.app as app:
        worker = Worker(app, grace=timedelta(seconds=60))
        task = asyncio.create_task(worker.run())
        job = await app.submit("wait")
        await until_running(app, job.job_id)

        worker.stop()
        await asyncio.sleep(0.05)  # nothing tells that it goes on
        assert not task.done()
        worker.stop()
        await asyncio.wait_for(task, 3)

        status = await app.get(job.job_id)
        assert (State.SCHEDULED, 0) == (status.state, status.attempt)


async def test_draining_twice_is_still_draining(site: Site) -> None:
    async with site.app as app:
        worker = Worker(app, grace=timedelta(seconds=60))
        task = asyncio.create_task(worker.run())
        job = await app.submit("wait")
        await until_running(app, job.job_id)

        worker.drain()
        worker.drain()
        await asyncio.sleep(0.05)  # nothing tells that it goes on
        assert not task.done()
        site.go.set()
        await asyncio.wait_for(task, 3)

        assert State.COMPLETED is (await app.get(job.job_id)).state


async def test_an_idle_worker_stops_at_once(site: Site) -> None:
    async with site.app as app:
        worker = Worker(app)
        task = asyncio.create_task(worker.run())
        await eventually(lambda: workers(app.store))
        began = time.monotonic()

        worker.stop()
        await asyncio.wait_for(task, 3)

        assert time.monotonic() - began < 0.5


async def test_a_stop_before_the_start_counts(site: Site) -> None:
    worker = Worker(site.app)

    worker.stop()

    await asyncio.wait_for(worker.run(), 3)


async def test_a_worker_stops_even_during_an_outage() -> None:
    store = FaultyStore(MemoryStore())
    site, events = Site(store), EventLog()
    async with site.app as app:
        worker = Worker(app, grace=timedelta(seconds=0.3), observer=events)
        task = asyncio.create_task(worker.run())
        job = await app.submit("wait")
        await until_running(app, job.job_id)
        store.away.add("*")
        site.go.set()
        await events.wait_for("store.unavailable")
        began = time.monotonic()

        worker.stop()
        await asyncio.wait_for(task, 5)

        assert time.monotonic() - began < 3
        assert 1 == sum(fields["lost"] == 1 for fields in events.all("results.lost"))


async def test_a_job_that_returned_to_the_queue_runs_again(site: Site) -> None:
    async with site.app as app:
        first = Worker(app, grace=timedelta(0))
        task = asyncio.create_task(first.run())
        job = await app.submit("wait")
        await until_running(app, job.job_id)
        first.stop()
        await asyncio.wait_for(task, 5)

        site.go.set()
        await Worker(app).run(burst=True)

        status = await app.get(job.job_id)
        assert (State.COMPLETED, 1) == (status.state, status.attempt)
        assert [job.job_id] == site.ran


@pytest.mark.req("S-10")
async def test_a_cancelled_worker_returns_its_jobs_to_the_queue(site: Site) -> None:
    async with site.app as app:
        task = asyncio.create_task(Worker(app, grace=timedelta(seconds=60)).run())
        job = await app.submit("wait")
        await until_running(app, job.job_id)

        task.cancel()
        await asyncio.wait([task], timeout=5)

        assert task.cancelled()
        status = await app.get(job.job_id)
        assert (State.SCHEDULED, 0) == (status.state, status.attempt)


async def test_limits_are_declared_once_the_store_is_available() -> None:
    store = FaultyStore(MemoryStore())
    app = Holdfast(store=store)  # type: ignore[arg-type]  # it passes every verb on

    @app.task("limited", limit=LimitRule(concurrency=1))
    async def limited() -> None: ...

    async with app:
        store.away.add("limit")
        worker = Worker(app)
        task = asyncio.create_task(worker.run())
        await until(lambda: store.refused > 1)
        assert not task.done()
        store.away.clear()
        job = await app.submit("limited")
        assert State.COMPLETED is await ended(app, job.job_id)
        assert ["task:limited"] == [state.scope for state in await store.inner.limits()]
        worker.halt()
        await task
