"""Jobs whose workers died under them start one at a time, so that a deadly one dies alone.

Nobody knows which job killed a process, and each has used up an attempt. Mostly it was none: once
is forgiven, unless only one attempt is left. After that, run together they would all end with the
guilty one. A suspect that has lived for a while does not hold the next one up any longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.model.job import Job
from holdfast.worker.run import Run

SYMPTOM = "LEASE_EXPIRED"
FORGIVEN = 1
"""Attempts that may end with their worker before a job is suspected."""

INCUBATION = 1.0
"""How long the first suspect has the others wait, in seconds; each that survives halves it."""

SHORTEST = 0.05


def is_suspect(job: Job) -> bool:
    """Whether the job's last attempt ended together with its worker, and was not the first."""
    died = job.failure is not None and job.failure.code == SYMPTOM
    return died and (job.attempt > FORGIVEN + 1 or job.attempt >= job.max_attempts)


class Quarantine:
    """Admits one suspect at a time; nothing is claimed until it has proved harmless."""

    def __init__(self, opened: Callable[[], None]) -> None:
        self._opened = opened
        self._timer: asyncio.TimerHandle | None = None
        self._survivors = 0
        self.is_careful = False
        """Whether the next job had better be claimed alone: there may be more suspects."""

    @property
    def is_closed(self) -> bool:
        """Whether a suspect is being watched."""
        return self._timer is not None

    def refused(self, runs: Sequence[Run]) -> list[Run]:
        """Admit the first suspect; return the others, which must not be in hand with it."""
        suspects = [run for run in runs if is_suspect(run.job)]
        self.is_careful = bool(suspects)
        if not suspects:
            self._survivors = 0
            return []
        suspects[0].written = self.open
        suspects[0].must_run_alone = len(suspects) > 1
        patience = max(SHORTEST, INCUBATION / 2**self._survivors)
        self._timer = asyncio.get_running_loop().call_later(patience, self.open)
        return suspects[1:]

    def open(self) -> None:
        """Let others in again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._survivors = min(self._survivors + 1, 10)
            self._opened()
