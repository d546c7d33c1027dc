"""Oban for Python, for comparison; run by a Python 3.12 that has it.

``python oban_peer.py DSN setup | fill N | work TICKS``. On uvloop, as its own command line does;
the limit of the queue is the best of 50, 200 and 500.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

import uvloop
from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool
from ticks import Ticks

BULK = 1000
LIMIT = 500
CONNECTIONS = 20
ticks: Ticks


@worker(queue="default")
class Noop:
    """Does nothing but count."""

    async def process(self, _: object) -> None:
        """Count one job."""
        ticks.tick()


async def setup(pool: AsyncConnectionPool) -> None:
    """Create its tables."""
    await install(pool)


async def fill(pool: AsyncConnectionPool, count: str) -> None:
    """Submit no-op jobs in bulk."""
    async with Oban(pool=pool) as oban:
        before = time.perf_counter()
        for start in range(0, int(count), BULK):
            await oban.enqueue_many([Noop.new({"n": n}) for n in range(start, start + BULK)])
        print(json.dumps({"seconds": time.perf_counter() - before}))


async def work(pool: AsyncConnectionPool, path: str) -> None:
    """Work until SIGTERM."""
    global ticks  # its workers are classes without arguments
    ticks, stopped = Ticks(path), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Oban(pool=pool, queues={"default": LIMIT}):
        await stopped.wait()


async def main(dsn: str, verb: str, *rest: str) -> None:
    """Run one verb."""
    verbs = {"setup": setup, "fill": fill, "work": work}
    async with AsyncConnectionPool(dsn, min_size=1, max_size=CONNECTIONS, open=False) as pool:
        await verbs[verb](pool, *rest)


uvloop.run(main(*sys.argv[1:]))
