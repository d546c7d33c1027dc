"""Jobs whose workers died start one at a time, so that a job that kills its worker dies alone.

It is unknown which job killed a process, and each has used up an attempt. Mostly it was none: one
such death is ignored, unless only one attempt is left. After that, jobs run together would all
end with the guilty one. A suspect that ran for a while delays no other, nor other types at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.model.job import DIED_TOGETHER, LEASE_EXPIRED, Job
from holdfast.worker.run import Run

IGNORED = 1
"""Attempts that may end with their worker before a job is suspected."""

FIRST_WATCH = 1.0
"""How long the first suspect is watched, in seconds; each that survives halves it."""

SHORTEST_WATCH = 0.05


def is_suspect(job: Job) -> bool:
    """Whether the job's last attempt ended together with its worker, and was not the first.

    Several workers that died together are not the fault of a job.
    """
    failure = job.failure
    if failure is None or failure.code != LEASE_EXPIRED or failure.message == DIED_TOGETHER:
        return False
    return job.attempt > IGNORED + 1 or job.attempt >= job.max_attempts


class Quarantine:
    """Admits one suspect at a time; nothing of its type is claimed while it is watched."""

    def __init__(self, on_open: Callable[[], None], *, by_type: bool) -> None:
        self._on_open = on_open
        self._by_type = by_type
        self._timer: asyncio.TimerHandle | None = None
        self._survivors = 0
        self.is_closed = False
        """Whether a suspect is being watched."""
        self.is_careful = False
        """Whether the next job is claimed alone, because there may be more suspects."""
        self.types: set[str] = set()
        """The types that may have more suspects."""

    def refused(self, runs: Sequence[Run]) -> list[Run]:
        """Admit the first suspect; return the others, which must not run beside it."""
        suspects = [run for run in runs if is_suspect(run.job)]
        if not suspects:
            if not self._by_type or any(run.job.type in self.types for run in runs):
                self._survivors, self.is_careful = 0, False
                self.types.clear()
            return []
        self.is_careful = True
        self.types.update(run.job.type for run in suspects)
        if self.is_closed:
            return suspects
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
