"""Plain functions, in threads of our own.

A thread cannot be stopped. When its job is interrupted the thread is fenced off: nothing it
writes counts any more, its slot is given back, and it is counted as leaked until it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable

from holdfast.observe import Observer
from holdfast.tasks.context import SyncJobContext
from holdfast.worker.execution import Outcome, perform_sync
from holdfast.worker.run import Run
from holdfast.worker.runners.bridge import Bridge

IDLE_SECONDS = 30.0


class ThreadRunner:
    """A pool that grows with demand, shrinks when idle, and replaces what it lost."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = 0
        self._threads = 0
        self._lock = threading.Lock()
        self.leaked = 0

    async def run(self, run: Run) -> Outcome:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Outcome] = loop.create_future()
        call = Bridge(run, loop)
        context = SyncJobContext(run.job, run.context.deadline, run.signals, call)

        def work() -> None:
            outcome = perform_sync(run.handler, run.job, context)
            self._ended(call)
            with contextlib.suppress(RuntimeError):  # the worker stopped without us
                loop.call_soon_threadsafe(_finish, done, outcome)

        self._start(work)
        try:
            return await done
        except asyncio.CancelledError:
            self._leak(run, call)
            raise

    async def close(self) -> None:
        for _ in range(self._threads):
            self._work.put(None)

    def _start(self, work: Callable[[], None]) -> None:
        with self._lock:
            grow = self._idle == 0
            if not grow:
                self._idle -= 1
        if grow:
            threading.Thread(target=self._serve, name="holdfast-task", daemon=True).start()
            with self._lock:
                self._threads += 1
        self._work.put(work)

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._retire():
                    return
                continue
            if work is None:
                return
            work()
            with self._lock:
                self._idle += 1

    def _retire(self) -> bool:
        """Leave, unless work was handed to us in this very moment."""
        with self._lock:
            if self._idle == 0:
                return False
            self._idle -= 1
            self._threads -= 1
            return True

    def _ended(self, call: Bridge) -> None:
        with self._lock:
            call.ended = True
            if call.fenced:
                self.leaked -= 1

    def _leak(self, run: Run, call: Bridge) -> None:
        """Fence a thread off that goes on; one that ended in this very moment is no leak."""
        with self._lock:
            call.fence()
            if call.ended:
                return
            self.leaked += 1
        self._observer.tell(
            "thread.leaked",
            job_id=run.job.id,
            type=run.job.type,
            attempt=run.job.attempt,
            leaked=self.leaked,
        )


def _finish(done: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not done.done():
        done.set_result(outcome)
