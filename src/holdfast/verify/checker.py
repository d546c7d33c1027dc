"""The whole check, job by job: pure, in memory that hardly grows with the number of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.model.job import Job, State, Transition
from holdfast.verify import rules
from holdfast.verify.findings import Kind, Violation
from holdfast.verify.order import ServiceOrder
from holdfast.verify.rules import KeyRule, violations
from holdfast.verify.witness import Witness

GRACE = timedelta(seconds=30)
"""How long something may be due, with workers there, before it counts as stuck."""

CLOCK_SLACK = timedelta(seconds=1)
"""How far the clocks may be apart by which processes date what they write."""

ON_ITS_WAY = timedelta(seconds=60)
"""How long a submission may take from being dated to having its place in the queue."""

MOST_TOLD = 100
"""Findings of one kind that are kept word for word; all are counted."""

NOBODY: Mapping[str, Sequence[Transition]] = {}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found."""

    jobs: int
    counts: Mapping[str, int]
    """How many findings there are of each kind, also where there are none."""
    findings: tuple[Violation, ...]
    states: Mapping[str, int]
    events: Mapping[str, int]
    ordered: int = 0
    """Jobs whose order of service could be judged: one worker at a time served their line."""
    moving: int = 0
    """Jobs that moved on faster than they could be read."""

    @property
    def sound(self) -> bool:
        """Whether no promise was broken."""
        return not any(self.counts.values())


class Checker:
    """Judges jobs one after the other, oldest first."""

    def __init__(
        self,
        witness: Witness | None = None,
        *,
        slack: timedelta = CLOCK_SLACK,
        on_its_way: timedelta = ON_ITS_WAY,
        tended: bool = True,
    ) -> None:
        """``tended``: workers are there, so that nothing may stay due for long."""
        self._witness = witness
        self._slack = slack
        self._tended = tended
        self._keys = KeyRule(slack)
        self._order = ServiceOrder(on_its_way)
        self._counts: Counter[Kind] = Counter()
        self._told: list[Violation] = []
        self._states: Counter[str] = Counter()
        self._events: Counter[str] = Counter()
        self._jobs = 0
        self.moving = 0

    def see(
        self,
        job: Job,
        history: Sequence[Transition],
        parents: Mapping[str, Sequence[Transition]] = NOBODY,
        *,
        now: datetime,
    ) -> None:
        """Judge a job by its history, and those of the jobs it waits for, as of ``now``."""
        self._jobs += 1
        self._states[job.state] += 1
        self._events.update(edge.event for edge in history)
        self._add(violations(job, history, slack=self._slack))
        if not history:
            return
        if parents:
            self._add(rules.early(job, history, parents, slack=self._slack))
        if self._tended:
            self._add(_forsaken(job, parents, now - GRACE))
        self._add(self._keys.see(job))
        self._order.see(job, history, now)
        if self._witness is not None:
            self._add(self._witness.doubts(job, history))

    def finish(self) -> Report:
        """Say what was found, now that every job was seen."""
        self._add(self._order.inversions())
        if self._witness is not None:
            self._add(self._witness.lost())
        return Report(
            jobs=self._jobs,
            counts={kind: self._counts[kind] for kind in Kind},
            findings=tuple(self._told),
            states=dict(sorted(self._states.items())),
            events=dict(sorted(self._events.items())),
            ordered=self._order.judged,
            moving=self.moving,
        )

    def _add(self, findings: Iterable[Violation]) -> None:
        for finding in findings:
            self._counts[finding.kind] += 1
            if self._counts[finding.kind] <= MOST_TOLD:
                self._told.append(finding)


def _forsaken(
    job: Job, parents: Mapping[str, Sequence[Transition]], before: datetime
) -> Iterable[Violation]:
    """Name a job on which something was due before the given instant."""
    match job.state:
        case State.PENDING:
            yield from rules.forgotten(job, parents, before=before)
        case State.DELAYED | State.RETRYING if job.due_at and job.due_at < before:
            yield Violation(Kind.STUCK, job.id, f"is {job.state} although its time has come")
        case State.RUNNING if job.lease and job.lease.until and job.lease.until < before:
            yield Violation(Kind.STUCK, job.id, "is RUNNING although its lease ended long ago")
