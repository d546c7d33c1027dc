"""flexiq's worker over SQLite, for comparison; run by a Python that has flexiq.

``python flexiq_peer.py FILE JOBS`` queues no-op tasks and prints what working them off took. Its
commits survive the end of processes, not power loss. The settings are the best of those tried:
1, 4 and 16 threads, batches of 100, 500 and 1,000; by default it looks for jobs every 50 ms.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time

from flexiq import Queue

SETTINGS = {"workers": 4, "scheduler_poll_interval_ms": 1, "scheduler_batch_size": 500}
BULK = 1000

logging.disable(logging.INFO)
path, count = sys.argv[1], int(sys.argv[2])
queue = Queue(db_path=path, **SETTINGS)
done = threading.Event()
seen = 0
lock = threading.Lock()


@queue.task(name="noop")
def noop(n: int) -> int:
    """Do nothing."""
    global seen  # noqa: PLW0603  # a counter for one script
    with lock:
        seen += 1
        if seen == count:
            done.set()
    return n


for start in range(0, count, BULK):
    queue.enqueue_many("noop", [(n,) for n in range(start, min(count, start + BULK))])
before, cpu = time.perf_counter(), time.process_time()
with contextlib.redirect_stdout(sys.stderr):  # it prints a banner
    threading.Thread(target=queue.run_worker, daemon=True).start()
    done.wait(300)
spent = {"seconds": time.perf_counter() - before, "cpu": time.process_time() - cpu}
print(json.dumps(spent), flush=True)
os._exit(0)  # its threads have no end of their own here
