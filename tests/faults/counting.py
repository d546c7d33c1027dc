"""A worker that counts in the transaction that completes its job; tests kill it."""

from __future__ import annotations

import asyncio

from psycopg import AsyncConnection

from holdfast import Holdfast, JobContext
from holdfast.worker import Worker

TYPE = "count"
COUNTERS = 16
app = Holdfast()


@app.task(TYPE)
async def count(ctx: JobContext, counter: int) -> None:
    """Add one to a counter."""
    async with ctx.transaction() as connection:
        assert isinstance(connection, AsyncConnection)
        await connection.execute("UPDATE counted SET n = n + 1 WHERE counter = %s", (counter,))


if __name__ == "__main__":
    asyncio.run(Worker(app, slots=8, maintenance=False).run())
