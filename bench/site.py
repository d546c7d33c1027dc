"""The worker process that ``bench.worker`` measures: ``python -m bench.site MODE SLOTS``.

``drain`` works off what is there and prints what it took; ``serve`` works until told to stop;
``coroutines`` drains with nothing but coroutine tasks, so that no process pool is started.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
import time

from holdfast import Holdfast
from holdfast.worker import Worker

app = Holdfast()
coroutines = Holdfast()


async def noop(n: int) -> int:
    """Do nothing."""
    return n


app.task("noop")(noop)
coroutines.task("noop")(noop)


@app.task("noop.process", runner="process")
def noop_process(n: int) -> int:
    """Do nothing, elsewhere."""
    return n


@app.task("when")
async def when() -> float:
    """Say when it was started."""
    return time.time()


@app.task("spin", runner="process", max_attempts=1)
def spin(*, stubborn: bool) -> None:
    """Compute for ever, deaf to requests if asked."""
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        pass


async def main(mode: str, slots: int) -> None:
    """Run one worker."""
    site = coroutines if mode == "coroutines" else app
    async with site:
        pass  # imports the store: a process that starts is not working jobs off yet
    worker = Worker(site, slots=slots)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    before, cpu = time.perf_counter(), time.process_time()
    loop_cpu = time.thread_time()
    await worker.run(burst=mode != "serve")
    figures = {
        "seconds": time.perf_counter() - before,
        "cpu": time.process_time() - cpu,
        "loop": time.thread_time() - loop_cpu,
        "children": resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    # Children of the process runner look for the app where it was imported, not in a script.
    from bench.site import main as importable

    asyncio.run(importable(sys.argv[1], int(sys.argv[2])))
