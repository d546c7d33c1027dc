"""BullMQ for Python: its defaults; or a lock of one second, checked twice a second."""

from __future__ import annotations

import asyncio

from bullmq import Queue, Worker
from job import FAST, FOREVER, URL, endless_coroutine, main

SHORT = {"lockDuration": 1000, "stalledInterval": 500}


async def process(*_: object) -> None:
    """Run until killed."""
    await endless_coroutine()


async def submit() -> None:
    """Enqueue."""
    queue = Queue("recovery", {"connection": URL})
    await queue.add("endless", {})
    await queue.close()


async def work() -> None:
    """Run a worker."""
    worker = Worker("recovery", process, {"connection": URL, **(SHORT if FAST else {})})
    await asyncio.sleep(FOREVER)
    await worker.close()


main(submit=lambda: asyncio.run(submit()), work=lambda: asyncio.run(work()))
