"""huey's consumer over SQLite, for comparison; run by a Python that has huey.

``python huey_peer.py FILE JOBS WORKERS`` queues no-op tasks and prints what working them off took.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from huey import SqliteHuey

path, count, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
huey = SqliteHuey("bench", filename=path)
done = threading.Event()
seen = 0
lock = threading.Lock()


@huey.task()
def noop(n: int) -> int:
    """Do nothing."""
    global seen  # noqa: PLW0603  # a counter for one script
    with lock:
        seen += 1
        if seen == count:
            done.set()
    return n


for i in range(count):
    noop(i)
consumer = huey.create_consumer(workers=workers, worker_type="thread", periodic=False)
before, cpu = time.perf_counter(), time.process_time()
consumer.start()
done.wait(300)
print(json.dumps({"seconds": time.perf_counter() - before, "cpu": time.process_time() - cpu}))
consumer.stop()
