"""Which deaths of worker processes a job may have caused."""

from __future__ import annotations

import asyncio
import signal

from holdfast.runtime.clock import Clock
from holdfast.worker.supervisor.process import WorkerProcess

TOGETHER = 0.1
"""A job kills one process. Those that die within so many seconds have another cause."""

FROM_OUTSIDE = tuple(-number for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
"""The exit codes of processes that were asked to stop before they could."""


class Deaths:
    """The recent deaths of the processes of one supervisor."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: list[float] = []

    async def by_job(self, process: WorkerProcess, code: int) -> bool:
        """Whether a job may have killed a process that just died by itself."""
        died = self._clock.monotonic()
        self._recent = [at for at in self._recent if died - at <= TOGETHER]
        self._recent.append(died)
        if code in FROM_OUTSIDE or process.was_blocked:
            return False
        await asyncio.sleep(TOGETHER)
        return [died] == [at for at in self._recent if abs(at - died) <= TOGETHER]
