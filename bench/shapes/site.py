"""The worker process of a shape: ``python -m bench.shapes.site VARIANT SLOTS``.

It works until SIGTERM. A variant is a set of tasks; ``0`` slots stands for the default.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from datetime import timedelta

from holdfast import Holdfast, JobContext, LimitRule
from holdfast.runtime.event_loop import run
from holdfast.worker import Worker

NAP = 0.02


def plain(app: Holdfast) -> None:
    """Declare tasks without limits."""

    @app.task("noop")
    async def noop(n: int) -> int:
        return n

    @app.task("nap")
    async def nap(n: int) -> int:
        await asyncio.sleep(NAP)
        return n

    @app.task("when")
    async def when() -> int:
        return time.time_ns()

    @app.task("size")
    async def size(text: str) -> int:
        return len(text)

    @app.task("fail", max_attempts=1)
    async def fail(n: int) -> None:
        raise ValueError(f"order {n} has no customer")

    @app.task("spawn")
    async def spawn(ctx: JobContext, count: int) -> float:
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for n in range(count):
                group.create_task(ctx.spawn("noop", {"n": n}))
        return time.perf_counter() - begun


def unused(app: Holdfast) -> None:
    """Declare the same and a limited task that nobody submits."""
    plain(app)

    @app.task("unused", limit=LimitRule(concurrency=5))
    async def limited() -> None:
        """Never runs."""


def single(app: Holdfast) -> None:
    """Declare a task that runs once at a time, everywhere."""
    plain(app)

    @app.task("single", limit=LimitRule(concurrency=1))
    async def once(seconds: float) -> None:
        await asyncio.sleep(seconds)


def keys(app: Holdfast) -> None:
    """Declare a task with a limit for each key."""
    plain(app)

    @app.task("keyed", key_limit=LimitRule(concurrency=5))
    async def keyed(seconds: float) -> None:
        await asyncio.sleep(seconds)


def ticking(app: Holdfast) -> None:
    """Declare a hundred schedules that are due every second."""
    for number in range(100):

        @app.cron("* * * * * *")
        @app.task(f"tick.{number}")
        async def tick() -> int:
            return time.time_ns()


def traced(app: Holdfast) -> None:
    """Declare the same as plain, and trace one job in a hundred."""
    from bench.shapes.tracing import tracing  # others need no OpenTelemetry

    app.middleware(tracing())
    plain(app)


VARIANTS = {each.__name__: each for each in (plain, unused, single, keys, ticking, traced)}


async def main(variant: str, slots: str) -> None:
    """Work until SIGTERM."""
    app = Holdfast()
    VARIANTS[variant](app)
    chosen = {"slots": int(slots)} if int(slots) else {}
    worker = Worker(app, grace=timedelta(0), **chosen)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
