"""Many workers in one process: threads and descriptors do not grow with their number."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

from holdfast import Holdfast, State
from holdfast.worker import Worker
from tests.waiting import eventually
from tests.worker.rig import ended

WORKERS = 50


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _app(url: str) -> Holdfast:
    app = Holdfast(url)

    @app.task("ping")
    async def ping() -> int:
        return 1

    return app


async def test_fifty_workers_on_one_file_share_threads_and_descriptors(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    threads, descriptors = threading.active_count(), _descriptors()
    workers = [Worker(_app(url), slots=2) for _ in range(WORKERS)]

    async with _app(url) as app:
        running = [asyncio.create_task(worker.run()) for worker in workers]

        async def all_run() -> bool:
            return WORKERS == len(await app.workers())

        await eventually(all_run)
        states = [await ended(app, (await app.submit("ping")).job_id) for _ in range(5)]

        # One writer, four readers, one thread for all heartbeats; sockets and files for all.
        assert threading.active_count() - threads <= 6
        assert _descriptors() - descriptors <= 20
        assert [State.COMPLETED] * 5 == states
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)

    assert (threads, descriptors) == (
        await eventually(lambda: threading.active_count() <= threads and threads),
        _descriptors(),
    )


async def test_worker_that_stops_leaves_the_heartbeats_of_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app, other = _app(url), _app(url)
    running, released = asyncio.Event(), asyncio.Event()

    @other.task("long", lease=timedelta(seconds=2))
    async def long() -> str:
        running.set()
        await released.wait()
        return "held"

    first, second = Worker(app), Worker(other)
    tasks = [asyncio.create_task(each.run()) for each in (first, second)]
    async with _app(url) as client:
        job = await client.submit("long", max_attempts=1)
        await running.wait()

        first.stop()
        await tasks[0]
        await asyncio.sleep(4.5)  # two leases: only renewals keep the job
        released.set()

        assert State.COMPLETED is await ended(client, job.job_id)
        second.stop()
        await tasks[1]
