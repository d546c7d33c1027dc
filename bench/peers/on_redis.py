"""Other Python queues on Redis, for comparison; run by a Python that has them.

``python on_redis.py NAME URL JOBS WORKERS`` queues no-op tasks, works them off in one process,
and prints the seconds from the first start to the last end.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time

name, url, count, workers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
done = threading.Event()
lock = threading.Lock()
first = last = 0.0
seen = 0


def tick() -> None:
    """Take note of one job."""
    global first, last, seen  # noqa: PLW0603  # counters for one script
    with lock:
        last = time.perf_counter()
        first = first or last
        seen += 1
        if seen == count:
            done.set()


def huey() -> None:
    """Run huey's consumer with threads."""
    from huey import RedisHuey

    queue = RedisHuey("bench", url=url)

    @queue.task()
    def noop(n: int) -> int:
        tick()
        return n

    for n in range(count):
        noop(n)
    consumer = queue.create_consumer(workers=workers, worker_type="thread", periodic=False)
    consumer.start()
    done.wait(300)
    consumer.stop()


def dramatiq() -> None:
    """Run a dramatiq worker with threads."""
    import dramatiq as package
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(url=url)
    package.set_broker(broker)

    @package.actor
    def noop(n: int) -> int:
        tick()
        return n

    for n in range(count):
        noop.send(n)
    worker = package.Worker(broker, worker_threads=workers)
    worker.start()
    done.wait(300)
    broker.join("default", timeout=60_000)
    worker.stop()


def arq() -> None:
    """Run an arq worker."""
    asyncio.run(_arq())


async def _arq() -> None:
    from arq import create_pool
    from arq.connections import RedisSettings
    from arq.worker import Worker, func

    settings = RedisSettings.from_dsn(url)
    pool = await create_pool(settings)
    for n in range(count):
        await pool.enqueue_job("noop", n)

    async def noop(_: object, n: int) -> int:
        tick()
        return n

    worker = Worker(
        functions=[func(noop, name="noop")],
        redis_settings=settings,
        max_jobs=workers,
        burst=True,
        poll_delay=0.01,
        handle_signals=False,
    )
    await worker.async_run()


{"huey": huey, "dramatiq": dramatiq, "arq": arq}[name]()
print(json.dumps({"seconds": last - first, "done": seen}))
