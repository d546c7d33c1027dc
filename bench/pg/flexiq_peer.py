"""flexiq on PostgreSQL, for comparison; run by a Python that has it.

``python flexiq_peer.py DSN setup | fill N | work TICKS``. The settings are the best of those
tried: 4 and 16 threads, batches of 100 and 500.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time

from flexiq import Queue
from ticks import Ticks

BULK = 1000
SETTINGS = {
    "workers": 16,
    "pool_size": 20,
    "scheduler_poll_interval_ms": 1,
    "scheduler_batch_size": 500,
}


def fill(queue: Queue, count: str) -> None:
    """Submit no-op jobs in bulk."""
    queue.task(name="noop")(print)
    before = time.perf_counter()
    for start in range(0, int(count), BULK):
        queue.enqueue_many("noop", [(n,) for n in range(start, start + BULK)])
    print(json.dumps({"seconds": time.perf_counter() - before}))


def work(queue: Queue, path: str) -> None:
    """Work until SIGTERM."""
    ticks, lock = Ticks(path), threading.Lock()

    @queue.task(name="noop")
    def noop(n: int) -> None:
        with lock:
            ticks.tick()

    with contextlib.redirect_stdout(sys.stderr):  # it prints a banner
        queue.run_worker()


def main(dsn: str, verb: str, *rest: str) -> None:
    """Run one verb; to make the queue creates its tables."""
    logging.disable(logging.INFO)
    verbs = {"setup": lambda _: None, "fill": fill, "work": work}
    url = dsn.replace("postgresql://", "postgres://", 1)
    verbs[verb](Queue(backend="postgres", db_url=url, **SETTINGS), *rest)


main(*sys.argv[1:])
