"""Procrastinate: its defaults; or the documented periodic task that retries stalled jobs."""

from __future__ import annotations

import asyncio

import procrastinate
from job import FAST, URL, endless_coroutine, main

SHORT = {
    "update_heartbeat_interval": 1,
    "stalled_worker_timeout": 3,
    "fetch_job_polling_interval": 0.5,
}
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL))
task = app.task(name="endless", retry=FAST)(endless_coroutine)

if FAST:

    @app.periodic(cron="* * * * * *")
    @app.task(name="retry_stalled", queueing_lock="retry_stalled")
    async def retry_stalled(timestamp: int) -> None:  # its scheduler passes it
        """Retry the jobs of workers that are silent for three seconds."""
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=3):
            await app.job_manager.retry_job(job)


async def submit() -> None:
    """Create the tables and enqueue."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await task.defer_async()


async def work() -> None:
    """Run a worker."""
    async with app.open_async():
        await app.run_worker_async(concurrency=10, **(SHORT if FAST else {}))


main(submit=lambda: asyncio.run(submit()), work=lambda: asyncio.run(work()))
