"""PgQueuer: its defaults; or a heartbeat timeout of two seconds."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
from job import FAST, URL, endless_coroutine, main
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

SHORT = {"heartbeat_timeout": timedelta(seconds=2), "dequeue_timeout": timedelta(seconds=1)}


async def submit() -> None:
    """Create the tables and enqueue."""
    queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))
    await queries.install()
    await queries.enqueue("endless", None)


async def work() -> None:
    """Run a worker."""
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))

    @queue.entrypoint("endless")
    async def endless(_: object) -> None:
        await endless_coroutine()

    await queue.run(**(SHORT if FAST else {}))


main(submit=lambda: asyncio.run(submit()), work=lambda: asyncio.run(work()))
