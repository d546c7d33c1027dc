"""arq: its defaults; or a job timeout of fifteen seconds, after which a lost job is repeated."""

from __future__ import annotations

import asyncio

from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import run_worker
from job import FAST, URL, endless_coroutine, main

PLACE = RedisSettings.from_dsn(URL)


async def endless(_: object) -> None:
    """Run until killed."""
    await endless_coroutine()


class Settings:
    """The settings of its worker."""

    functions = (func(endless, timeout=15) if FAST else endless,)
    redis_settings = PLACE
    job_timeout = 15 if FAST else 300
    poll_delay = 0.1 if FAST else 0.5


async def enqueue() -> None:
    """Enqueue."""
    await (await create_pool(PLACE)).enqueue_job("endless")


main(submit=lambda: asyncio.run(enqueue()), work=lambda: run_worker(Settings))
