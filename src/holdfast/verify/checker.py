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
from holdfast.verify.rules import Histories, KeyRule, violations
from holdfast.verify.witness import Witness

GRACE = timedelta(seconds=30)
"""How long something may be due, while workers run, before it counts as stuck."""

CLOCK_SLACK = timedelta(seconds=1)
"""How far apart the clocks of the processes that write records may be."""

ORDER_SLACK = timedelta(seconds=60)
"""How long a submission may take from its timestamp to its place in the queue."""

MAX_FINDINGS = 100
"""How many findings of one kind a report lists; it counts all of them."""

NO_PARENTS: Histories = {}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found."""

    jobs: int
    counts: Mapping[str, int]
    """The number of findings of each kind, zeros included."""
    findings: tuple[Violation, ...]
    states: Mapping[str, int]
    events: Mapping[str, int]
    ordered: int = 0
    """Jobs whose order could be checked: one worker at a time claimed from their group."""
    moving: int = 0
    """Jobs that changed faster than they could be read."""

    @property
    def sound(self) -> bool:
        """Whether no promise was broken."""
        return not any(self.counts.values())


class Checker:
    """Checks jobs one after the other, oldest first.

    ``slack`` is how far the clocks of the recording processes may be apart. Of two jobs that
    were queued within ``order_slack``, either may be claimed first. With ``has_workers``
    nothing may stay due for long.
    """

    def __init__(
        self,
        witness: Witness | None = None,
        *,
        slack: timedelta = CLOCK_SLACK,
        order_slack: timedelta = ORDER_SLACK,
        has_workers: bool = True,
    ) -> None:
        self._witness = witness
        self._slack = slack
        self._has_workers = has_workers
        self._keys = KeyRule(slack)
        self._order = ServiceOrder(order_slack)
        self._counts: Counter[Kind] = Counter()
        self._findings: list[Violation] = []
        self._states: Counter[str] = Counter()
        self._events: Counter[str] = Counter()
        self._jobs = 0
        self.moving = 0

    def check(
        self,
        job: Job,
        history: Sequence[Transition],
        parents: Histories = NO_PARENTS,
        *,
        now: datetime,
    ) -> None:
        """Check a job by its history, and by those of its dependencies, as of ``now``."""
        self._jobs += 1
        self._states[job.state] += 1
        self._events.update(edge.event for edge in history)
        self._add(violations(job, history, slack=self._slack))
        if not history:
            return
        if parents:
            self._add(rules.started_early(job, history, parents, slack=self._slack))
        if self._has_workers:
            self._add(_overdue(job, parents, now - GRACE))
        self._add(self._keys.check(job))
        self._order.add(job, history, now)
        if self._witness is not None:
            self._add(self._witness.contradictions(job, history))

    def finish(self) -> Report:
        """Return the report, after every job was checked."""
        self._add(self._order.inversions())
        if self._witness is not None:
            self._add(self._witness.lost())
        return Report(
            jobs=self._jobs,
            counts={kind: self._counts[kind] for kind in Kind},
            findings=tuple(self._findings),
            states=dict(sorted(self._states.items())),
            events=dict(sorted(self._events.items())),
            ordered=self._order.checked,
            moving=self.moving,
        )

    def _add(self, findings: Iterable[Violation]) -> None:
        for finding in findings:
            self._counts[finding.kind] += 1
            if self._counts[finding.kind] <= MAX_FINDINGS:
                self._findings.append(finding)


def _overdue(job: Job, parents: Histories, before: datetime) -> Iterable[Violation]:
    """Report a job on which something has been due since before the given instant."""
    match job.state:
        case State.PENDING:
            yield from rules.left_waiting(job, parents, before=before)
        case State.DELAYED | State.RETRYING if job.due_at and job.due_at < before:
            yield Violation(Kind.STUCK, job.id, f"is {job.state} although it is due")
        case State.RUNNING if job.lease and job.lease.until and job.lease.until < before:
            yield Violation(Kind.STUCK, job.id, "is RUNNING although its lease has expired")
