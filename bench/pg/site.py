"""holdfast in the comparison: ``python -m bench.pg.site DSN VERB [ARGUMENT]``.

The same verbs as the peers: ``setup | fill N | submit | work TICKS``.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

from bench.pg.ticks import Ticks
from holdfast import Holdfast
from holdfast.runtime.event_loop import run
from holdfast.worker import Worker

BULK = 1000
SLOTS = 2000


async def setup(app: Holdfast) -> None:
    """Create the tables."""
    async with app:
        pass


async def fill(app: Holdfast, count: str) -> None:
    """Submit no-op jobs in batches."""
    async with app:
        before = time.perf_counter()
        for start in range(0, int(count), BULK):
            await app.submit_batch(
                [{"type": "noop", "payload": {"n": n}} for n in range(start, start + BULK)]
            )
        print(json.dumps({"seconds": time.perf_counter() - before}))


async def submit(app: Holdfast) -> None:
    """Submit as many no-op jobs as each line of stdin requests, one by one."""
    async with app:
        await app.submit("noop", {"n": 0})
        for turn in sys.stdin:
            before = time.perf_counter()
            for n in range(int(turn)):
                await app.submit("noop", {"n": n})
            print(json.dumps({"seconds": time.perf_counter() - before}), flush=True)


async def work(app: Holdfast, path: str) -> None:
    """Work until SIGTERM."""
    ticks = Ticks(path)

    @app.task("noop")
    async def noop(n: int) -> int:
        ticks.tick()
        return n

    @app.task("when")
    async def when() -> int:
        ticks.tick()
        return time.monotonic_ns()

    worker = Worker(app, slots=SLOTS)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


async def main(dsn: str, verb: str, *rest: str) -> None:
    """Run one verb."""
    verbs = {"setup": setup, "fill": fill, "submit": submit, "work": work}
    await verbs[verb](Holdfast(dsn), *rest)


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
