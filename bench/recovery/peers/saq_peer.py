"""SAQ: its defaults; or a job that sends heartbeats, and a sweep every second."""

from __future__ import annotations

import asyncio

from job import FAST, FOREVER, URL, main, started
from saq import Queue, Worker

SHORT = {"timeout": 0, "heartbeat": 3, "retries": 5}


async def endless(context: dict[str, object]) -> None:
    """Run until killed; a heartbeat is the handler's own update."""
    started()
    for _ in range(int(FOREVER)):
        if FAST:
            await context["job"].update()
        await asyncio.sleep(1)


async def submit() -> None:
    """Enqueue."""
    queue = Queue.from_url(URL)
    await queue.connect()
    await queue.enqueue("endless", **(SHORT if FAST else {}))
    await queue.disconnect()


async def work() -> None:
    """Run a worker."""
    queue = Queue.from_url(URL)
    await queue.connect()
    await Worker(queue, functions=[endless], timers={"sweep": 1} if FAST else None).start()


main(submit=lambda: asyncio.run(submit()), work=lambda: asyncio.run(work()))
