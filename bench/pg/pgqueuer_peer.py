"""PgQueuer, for comparison; run by a Python that has it.

``python pgqueuer_peer.py DSN setup | fill N | submit | work TICKS``. As its own command line
does, it runs on uvloop with one asyncpg connection; the batch is the best of 10, 100 and 1000.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from ticks import Ticks

BATCH = 1000
BULK = 1000


async def setup(driver: AsyncpgDriver) -> None:
    """Create its tables."""
    await Queries(driver).install()


async def fill(driver: AsyncpgDriver, count: str) -> None:
    """Submit no-op jobs in bulk."""
    queries = Queries(driver)
    before = time.perf_counter()
    for start in range(0, int(count), BULK):
        await queries.enqueue(
            ["noop"] * BULK, [b"%d" % n for n in range(start, start + BULK)], [0] * BULK
        )
    print(json.dumps({"seconds": time.perf_counter() - before}))


async def submit(driver: AsyncpgDriver) -> None:
    """Submit as many no-op jobs as each line of stdin requests, one by one."""
    queries = Queries(driver)
    await queries.enqueue("noop", b"0")
    for turn in sys.stdin:
        before = time.perf_counter()
        for n in range(int(turn)):
            await queries.enqueue("noop", b"%d" % n)
        print(json.dumps({"seconds": time.perf_counter() - before}), flush=True)


async def work(driver: AsyncpgDriver, path: str) -> None:
    """Work until SIGTERM."""
    ticks = Ticks(path)
    queue = PgQueuer(driver)

    @queue.entrypoint("noop")
    async def noop(job: object) -> None:
        ticks.tick()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    await queue.run(batch_size=BATCH)


async def main(dsn: str, verb: str, *rest: str) -> None:
    """Run one verb."""
    verbs = {"setup": setup, "fill": fill, "submit": submit, "work": work}
    connection = await asyncpg.connect(dsn)
    await verbs[verb](AsyncpgDriver(connection), *rest)
    await connection.close()


uvloop.run(main(*sys.argv[1:]))
