"""First in, first out, where one worker at a time served a queue."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from holdfast.model.job import Event, Job, State, Transition
from holdfast.verify.findings import Kind, Violation

Line = tuple[str, int, str, str]
"""Queue, priority, type and limit key: jobs that nothing but their age tells apart."""


class ServiceOrder:
    """Remembers when jobs joined their line and when they left it.

    Several claimers at once may start jobs out of order; a line that saw two is forgotten.
    """

    def __init__(self, slack: timedelta) -> None:
        """``slack``: of two jobs that joined no further apart, either may be served first."""
        self._slack = slack.total_seconds()
        self._lines: dict[Line, _QueueLine | None] = {}

    def see(self, job: Job, history: Sequence[Transition], now: datetime) -> None:
        """Hear of a job; one that is still waiting left no earlier than ``now``."""
        joined = next((edge for edge in history if edge.to_state is State.SCHEDULED), None)
        if joined is None or job.generation > 1:
            return
        name = (job.queue, job.priority, job.type, job.limit_key)
        line = self._lines.setdefault(name, _QueueLine())
        if line is None:
            return
        claim = next((edge for edge in history if edge.event is Event.CLAIM), None)
        ended = history[-1].at if history[-1].to_state is not State.SCHEDULED else now
        line.joined.append(joined.at.timestamp())
        line.left.append((claim.at if claim else ended).timestamp())
        line.served.append(claim is not None)
        line.ids.append(job.id)
        for edge in history:
            if edge.event is Event.CLAIM:
                line.claimed(edge.worker, edge.at.timestamp())
        if line.is_shared:
            self._lines[name] = None

    @property
    def judged(self) -> int:
        """How many jobs can be judged by their order."""
        return sum(sum(line.served) for line in self._lines.values() if line is not None)

    def inversions(self) -> Iterator[Violation]:
        """Name every job that was served before one that had waited longer."""
        for line in self._lines.values():
            if line is not None:
                yield from line.inversions(self._slack)


class _QueueLine:
    def __init__(self) -> None:
        self.joined = array("d")
        self.left = array("d")
        self.served = bytearray()
        self.ids: list[str] = []
        self.is_shared = False
        """Whether two workers claimed in turns."""
        self._spans: dict[str, tuple[float, float]] = {}

    def claimed(self, worker: str, at: float) -> None:
        first, last = self._spans.get(worker, (at, at))
        first, last = self._spans[worker] = (min(first, at), max(last, at))
        self.is_shared = self.is_shared or any(
            other != worker and begin < last and first < end
            for other, (begin, end) in self._spans.items()
        )

    def inversions(self, slack: float) -> Iterator[Violation]:
        places = sorted(range(len(self.ids)), key=self.joined.__getitem__)
        latest, older = -1, 0
        for place in places:
            while self.joined[places[older]] + slack < self.joined[place]:
                if latest < 0 or self.left[places[older]] > self.left[latest]:
                    latest = places[older]
                older += 1
            if latest >= 0 and self.served[place] and self.left[place] < self.left[latest]:
                told = f"was served before {self.ids[latest]}, which had waited longer"
                yield Violation(Kind.ORDER, self.ids[place], told)
