"""First in, first out, where one worker at a time claimed from a queue."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from holdfast.model.job import Event, Job, State, Transition
from holdfast.verify.findings import Kind, Violation

GroupKey = tuple[str, int, str, str]
"""Queue, priority, type and limit key: jobs that share them differ only in their age."""


class ServiceOrder:
    """Records when jobs entered the queue and when they left it, in groups of equal jobs.

    Several claimers at once may start jobs out of order; a group that had two is dropped.
    """

    def __init__(self, slack: timedelta) -> None:
        """Of two jobs that were queued within ``slack``, either may be claimed first."""
        self._slack = slack.total_seconds()
        self._groups: dict[GroupKey, _Group | None] = {}

    def add(self, job: Job, history: Sequence[Transition], now: datetime) -> None:
        """Record a job; one that still waits leaves the queue no earlier than ``now``."""
        queued = next((edge for edge in history if edge.to_state is State.SCHEDULED), None)
        if queued is None or job.generation > 1:
            return
        key = (job.queue, job.priority, job.type, job.limit_key)
        group = self._groups.setdefault(key, _Group())
        if group is None:
            return
        claim = next((edge for edge in history if edge.event is Event.CLAIM), None)
        ended = history[-1].at if history[-1].to_state is not State.SCHEDULED else now
        group.queued.append(queued.at.timestamp())
        group.left.append((claim.at if claim else ended).timestamp())
        group.claimed.append(claim is not None)
        group.ids.append(job.id)
        for edge in history:
            if edge.event is Event.CLAIM:
                group.add_claim(edge.worker, edge.at.timestamp())
        if group.is_shared:
            self._groups[key] = None

    @property
    def checked(self) -> int:
        """The number of jobs whose order can be checked."""
        return sum(sum(group.claimed) for group in self._groups.values() if group is not None)

    def inversions(self) -> Iterator[Violation]:
        """Report every job that was claimed before one that had waited longer."""
        for group in self._groups.values():
            if group is not None:
                yield from group.inversions(self._slack)


class _Group:
    def __init__(self) -> None:
        self.queued = array("d")
        self.left = array("d")
        self.claimed = bytearray()
        self.ids: list[str] = []
        self.is_shared = False
        """Whether the claims of two workers alternate."""
        self._spans: dict[str, tuple[float, float]] = {}

    def add_claim(self, worker: str, at: float) -> None:
        first, last = self._spans.get(worker, (at, at))
        first, last = self._spans[worker] = (min(first, at), max(last, at))
        self.is_shared = self.is_shared or any(
            other != worker and begin < last and first < end
            for other, (begin, end) in self._spans.items()
        )

    def inversions(self, slack: float) -> Iterator[Violation]:
        by_age = sorted(range(len(self.ids)), key=self.queued.__getitem__)
        latest, older = -1, 0
        for index in by_age:
            while self.queued[by_age[older]] + slack < self.queued[index]:
                if latest < 0 or self.left[by_age[older]] > self.left[latest]:
                    latest = by_age[older]
                older += 1
            if latest >= 0 and self.claimed[index] and self.left[index] < self.left[latest]:
                text = f"was claimed before {self.ids[latest]}, which had waited longer"
                yield Violation(Kind.ORDER, self.ids[index], text)
