"""Jobs whose workers died start one at a time, so that a job that kills its worker dies alone.

It is unknown which job killed a process, and each has used up an attempt. Mostly it was none: one
such death is ignored, unless only one attempt is left. After that, jobs run together would all
end with the guilty one. A suspect that has run for a while no longer delays the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.model.job import LEASE_EXPIRED, Job
from holdfast.worker.run import Run

IGNORED = 1
"""Attempts that may end with their worker before a job is suspected."""

FIRST_WATCH = 1.0
"""How long the first suspect is watched, in seconds; each that survives halves it."""

SHORTEST_WATCH = 0.05


def is_suspect(job: Job) -> bool:
    """Whether the job's last attempt ended together with its worker, and was not the first."""
    died = job.failure is not None and job.failure.code == LEASE_EXPIRED
    return died and (job.attempt > IGNORED + 1 or job.attempt >= job.max_attempts)


class Quarantine:
    """Admits one suspect at a time; nothing is claimed while it is watched."""

    def __init__(self, on_open: Callable[[], None]) -> None:
        self._on_open = on_open
        self._timer: asyncio.TimerHandle | None = None
        self._survivors = 0
        self.is_closed = False
        """Whether a suspect is being watched."""
        self.is_careful = False
        """Whether the next job is claimed alone, because there may be more suspects."""

    def refused(self, runs: Sequence[Run]) -> list[Run]:
        """Admit the first suspect; return the others, which must not run beside it."""
        suspects = [run for run in runs if is_suspect(run.job)]
        self.is_careful = bool(suspects)
        if not suspects:
            self._survivors = 0
            return []
        suspects[0].on_written = self.open
        suspects[0].must_run_alone = len(suspects) > 1
        watch = max(SHORTEST_WATCH, FIRST_WATCH / 2**self._survivors)
        self._timer = asyncio.get_running_loop().call_later(watch, self.open)
        self.is_closed = True
        return suspects[1:]

    def open(self) -> None:
        """Admit the next job."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self.is_closed = None, False
            self._survivors = min(self._survivors + 1, 10)
            self._on_open()
