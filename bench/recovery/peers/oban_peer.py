"""Oban for Python: its defaults. Its lifeline rescues any job that has run for five minutes."""

from __future__ import annotations

import asyncio

from job import URL, endless_coroutine, main
from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool


@worker(queue="default")
class Endless:
    """Runs until killed."""

    async def process(self, _: object) -> None:
        """Note the start, and stay."""
        await endless_coroutine()


async def submit() -> None:
    """Create the tables and enqueue."""
    async with AsyncConnectionPool(URL, open=False) as pool:
        await install(pool)
        async with Oban(pool=pool):
            await Endless.enqueue({})


async def work() -> None:
    """Run a worker."""
    async with (
        AsyncConnectionPool(URL, open=False) as pool,
        Oban(pool=pool, queues={"default": 10}),
    ):
        await asyncio.Event().wait()


main(submit=lambda: asyncio.run(submit()), work=lambda: asyncio.run(work()))
