"""Jobs whose workers died start in small groups, so that a job that kills its worker dies alone.

Nobody knows which job killed a process, and every crash takes an attempt from each. So the group
of a crash is narrowed down: to at most 32 jobs before the last attempt, and then to each alone.
Most crashes are no job's fault. So groups follow each other quickly, and other types do not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from holdfast.model.job import Job
from holdfast.worker.run import Run

IGNORED = 1
"""Crashes after which a job still starts together with as many others as its attempts allow."""

FIRST_WATCH = 0.5
"""How long the first suspect is watched, in seconds; the second half of it, the third a third."""

GROUP_WATCH = 0.05
"""How long suspects are watched that lost only one worker."""

LEAST_WATCH = 0.002
"""How long suspects are watched at least, however many have survived."""

LAST_GROUP = 32
"""How many suspects may start together if they have one attempt left after this one."""

MOST_DOUBLINGS = 5


def is_suspect(job: Job) -> bool:
    """Whether the job may have killed the worker of its last attempt."""
    return job.failure is not None and job.failure.suspect


def most_beside(job: Job) -> int:
    """How many suspects may start together with this one: half as many after each crash."""
    left = job.max_attempts - job.attempt
    return LAST_GROUP << min(left - 1, MOST_DOUBLINGS) if left > 0 else 1


def _is_ignored(run: Run) -> bool:
    return run.job.attempt <= IGNORED + 1


class Quarantine:
    """Admits one group of suspects at a time; their types wait while it is watched."""

    def __init__(self, on_open: Callable[[], None], *, by_type: bool) -> None:
        self._on_open = on_open
        self._by_type = by_type
        self._timer: asyncio.TimerHandle | None = None
        self._survivors = 0
        self._watched: set[Run] = set()
        self._next_group = 1
        self.group = 1
        """How many suspects may run together."""
        self.is_closed = False
        """Whether suspects are being watched."""
        self.is_careful = False
        """Whether the next jobs are claimed as a group, because there may be more suspects."""
        self.types: set[str] = set()
        """The types that may have more suspects."""

    def refused(self, runs: Sequence[Run]) -> list[Run]:
        """Admit a group of suspects; return the others, which must not run beside it."""
        suspects = [run for run in runs if is_suspect(run.job)]
        if not suspects:
            if not self._by_type or any(run.job.type in self.types for run in runs):
                self._survivors, self.group, self.is_careful = 0, 1, False
                self.types.clear()
            return []
        admitted = self._admitted(suspects)
        are_ignored = all(_is_ignored(run) for run in suspects)
        if are_ignored and not self.is_careful and len(admitted) == len(suspects):
            return []
        self.is_careful = True
        self.types.update(run.job.type for run in suspects)
        if self.is_closed:
            return suspects
        others = [run for run in suspects if run not in admitted]
        for run in admitted:
            run.must_run_alone = bool(others)
        self._watch(admitted, GROUP_WATCH if are_ignored else self._patience())
        return others

    def _admitted(self, suspects: Sequence[Run]) -> Sequence[Run]:
        """Return the group to run: the fewer attempts its jobs have left, the smaller it is."""
        most = min(most_beside(run.job) for run in suspects)
        if most == 1:
            return [run for run in suspects if most_beside(run.job) == 1][:1]
        return suspects[: most if all(map(_is_ignored, suspects)) else min(self.group, most)]

    def _patience(self) -> float:
        """Return for how long to watch the next group, in seconds."""
        return max(LEAST_WATCH, FIRST_WATCH / (1 + self._survivors))

    def _watch(self, admitted: Sequence[Run], seconds: float) -> None:
        for run in admitted:
            run.on_written = partial(self._ended, run)
        self._watched = set(admitted)
        most = min(most_beside(run.job) for run in admitted)
        self._next_group = min(2 * len(admitted), most)
        self._timer = asyncio.get_running_loop().call_later(seconds, self.open)
        self.is_closed = True

    def _ended(self, run: Run) -> None:
        self._watched.discard(run)
        if not self._watched:
            self.open()

    def open(self) -> None:
        """Admit the next jobs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self.is_closed = None, False
            self._survivors += 1
            self.group = self._next_group
            self._on_open()
