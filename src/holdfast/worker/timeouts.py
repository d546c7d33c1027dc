"""Ending jobs at their deadline: one timer for all, set to the earliest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from holdfast.runtime.clock import Clock
from holdfast.worker.executor import Interruption
from holdfast.worker.run import Run


class JobTimeouts:
    """Interrupts running jobs whose time is up.

    A timer per job would cost more than a short job itself; most end long before theirs rings.
    """

    def __init__(self, clock: Clock, running: Mapping[str, Run]) -> None:
        self._clock = clock
        self._running = running
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = float("inf")

    def watch(self, runs: Sequence[Run]) -> None:
        """Hear of new jobs."""
        earliest = min(run.deadline for run in runs)
        if earliest < self._rings_at:
            self._set(earliest)

    def cancel(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, moment: float) -> None:
        self.cancel()
        self._rings_at = moment
        wait = max(0.0, moment - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(wait, self._ring)

    def _ring(self) -> None:
        now = self._clock.monotonic()
        for run in [run for run in self._running.values() if run.deadline <= now]:
            run.interrupt(Interruption.TIMEOUT)
        waiting = [run.deadline for run in self._running.values() if run.interruption is None]
        self._rings_at = float("inf")
        if waiting and min(waiting) < self._rings_at:
            self._set(min(waiting))
