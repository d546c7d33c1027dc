"""Interrupts jobs at their deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from holdfast.runtime.clock import Clock
from holdfast.runtime.timeouts import NEVER, SharedTimer
from holdfast.worker.outcomes import Interruption
from holdfast.worker.run import Run


class JobTimeouts:
    """Interrupts running jobs that reach their deadline.

    A timer per job would cost more than a short job itself; most end long before it fires.
    """

    def __init__(self, clock: Clock, running: Mapping[str, Run]) -> None:
        self._clock = clock
        self._running = running
        self._timer = SharedTimer(self._expire)
        self.earliest = NEVER
        """The deadline the timer is set to. Callers compare before they call ``set``."""

    def set(self, deadline: float) -> None:
        """Interrupt what is due at a deadline of the worker's clock."""
        self.earliest = deadline
        self._timer.set(self._loop_time(deadline))

    def cancel(self) -> None:
        """Interrupt no more jobs."""
        self._timer.cancel()
        self.earliest = NEVER

    def _expire(self, _: float) -> float:
        now = self._clock.monotonic()
        for run in [run for run in self._running.values() if run.deadline <= now]:
            run.interrupt(Interruption.TIMEOUT)
        waiting = (run.deadline for run in self._running.values() if run.interruption is None)
        self.earliest = min(waiting, default=NEVER)
        return self._loop_time(self.earliest)

    def _loop_time(self, deadline: float) -> float:
        wait = max(0.0, deadline - self._clock.monotonic())
        return asyncio.get_running_loop().time() + wait
