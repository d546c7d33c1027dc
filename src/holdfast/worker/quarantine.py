"""Jobs whose workers died start in small groups, so that a job that kills its worker dies alone.

Nobody knows which job killed a process; mostly none did, so the first death is ignored unless one
attempt is left. Groups begin with one job and double while they survive; each crash halves what
their jobs may form. A last attempt starts alone. Other types do not wait.
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

MOST_DOUBLINGS = 10


def is_suspect(job: Job) -> bool:
    """Whether the job's last attempt ended together with its worker, and was not the first.

    Several workers that died together are not the fault of a job.
    """
    failure = job.failure
    if failure is None or failure.code != LEASE_EXPIRED or failure.message == DIED_TOGETHER:
        return False
    return job.attempt > IGNORED + 1 or job.attempt >= job.max_attempts


class Quarantine:
    """Admits one group of suspects at a time; their types wait while it is watched."""

    def __init__(self, on_open: Callable[[], None], *, by_type: bool) -> None:
        self._on_open = on_open
        self._by_type = by_type
        self._timer: asyncio.TimerHandle | None = None
        self._survivors = 0
        self._watched = 0
        self._last = 1
        """The size of the last group."""
        self.is_closed = False
        """Whether suspects are being watched."""
        self.is_careful = False
        """Whether the next jobs are claimed as a group, because there may be more suspects."""
        self.types: set[str] = set()
        """The types that may have more suspects."""

    @property
    def group(self) -> int:
        """How many suspects may run together."""
        return min(1 << self._survivors, 2 * self._last)

    def refused(self, runs: Sequence[Run]) -> list[Run]:
        """Admit a group of suspects; return the others, which must not run beside it."""
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
        admitted = self._admitted(suspects)
        others = [run for run in suspects if run not in admitted]
        for run in admitted:
            run.on_written = self._ended
            run.must_run_alone = bool(others)
        self._watched = self._last = len(admitted)
        watch = max(SHORTEST_WATCH, FIRST_WATCH / 2**self._survivors)
        self._timer = asyncio.get_running_loop().call_later(watch, self.open)
        self.is_closed = True
        return others

    def _admitted(self, suspects: Sequence[Run]) -> Sequence[Run]:
        """Return the group to run: the fewer attempts its jobs have left, the smaller it is.

        Every crash of a group takes an attempt from each, so the next one is at most half of it.
        """
        left = min(run.job.max_attempts - run.job.attempt for run in suspects)
        if left <= 0:
            return [run for run in suspects if run.job.attempt >= run.job.max_attempts][:1]
        return suspects[: min(self.group, 1 << min(left, MOST_DOUBLINGS))]

    def _ended(self) -> None:
        self._watched -= 1
        if not self._watched:
            self.open()

    def open(self) -> None:
        """Admit the next jobs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self.is_closed = None, False
            self._survivors = min(self._survivors + 1, MOST_DOUBLINGS)
            self._on_open()
