"""Finds a coroutine that blocks the worker's event loop, and fails its job at its timeout.

It runs in the heartbeat's thread: nothing on the blocked loop could do it, neither the timer of
the timeout nor a cancellation. The code itself cannot be stopped; a supervisor replaces the
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from holdfast.errors import StoreError
from holdfast.observe import Observer
from holdfast.runtime.clock import Clock
from holdfast.worker.run import Run
from holdfast.worker.supervisor.protocol import LeaseListener

REPORTED_AFTER = 2.0
"""How long the loop must not respond before that is reported, in seconds; then twice as long."""

TIMEOUT_MARGIN = 1.0
"""How long past its deadline the loop has to time a job out by itself, in seconds."""

REPLACED_AFTER = 5.0
"""How long past a deadline the loop may be blocked before the process is given up, in seconds."""

ADVICE = "use a plain function or runner='process'"


class LoopWatch:
    """Asks the worker's loop for a sign of life at every look of the heartbeat."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        observer: Observer,
        time_out: Callable[[Run], Awaitable[None]],
        listener: LeaseListener | None = None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._observer = observer
        self._time_out = time_out
        self._listener = listener
        self._asked: float | None = None
        self._suspect: asyncio.Task[object] | None = None
        self._report_at = REPORTED_AFTER
        self._timed_out: set[str] = set()
        self._given_up = False

    async def look(self, runs: Collection[Run]) -> None:
        """Report a blocked loop, and deal with the job that blocks it."""
        now = self._clock.monotonic()
        if self._asked is None:
            self._ask(now)
            return
        task = asyncio.current_task(self._loop)
        if task is None or task is not self._suspect:
            self._suspect = task
            return
        run = next((run for run in runs if run.task is task), None)
        if run is not None and now - self._asked >= REPORTED_AFTER:
            self._report(run, now - self._asked)
            await self._end(run, now)

    def _ask(self, now: float) -> None:
        self._asked, self._suspect, self._report_at = now, None, REPORTED_AFTER
        self._loop.call_soon_threadsafe(self._responded)

    def _responded(self) -> None:
        self._asked = None

    def _report(self, run: Run, seconds: float) -> None:
        if seconds >= self._report_at:
            self._report_at = 2 * seconds
            self._observer.emit(
                "loop.blocked",
                job_id=run.job.id,
                type=run.job.type,
                attempt=run.job.attempt,
                blocked=round(seconds, 1),
                advice=ADVICE,
            )

    async def _end(self, run: Run, now: float) -> None:
        if now >= run.deadline + TIMEOUT_MARGIN and run.fence.token not in self._timed_out:
            self._timed_out.add(run.fence.token)
            try:
                await self._time_out(run)
            except StoreError:
                self._timed_out.discard(run.fence.token)
        if now >= run.deadline + REPLACED_AFTER and self._listener and not self._given_up:
            self._given_up = True
            self._listener.stuck(run)
