"""Operations on many jobs: what they change, which states they apply to, how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from holdfast.model.amendment import WAITING
from holdfast.model.job import LIVE, TERMINAL, State
from holdfast.model.times import Instant

MOST_PROBLEMS = 10
"""Examples of jobs that could not be changed."""
MOST_MESSAGE = 200
"""Characters of the message of an example."""


class BulkAction(StrEnum):
    """What happens to each job."""

    CANCEL = "cancel"
    RETRY = "retry"
    DELETE = "delete"
    REPRIORITISE = "reprioritise"
    RELEASE = "release"


class BulkState(StrEnum):
    """How far an operation is; the last three are final."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    """It stopped at an error that did not go away, which ``error`` names."""


ENDED = frozenset({BulkState.COMPLETED, BulkState.CANCELLED, BulkState.FAILED})

APPLIES_TO: Mapping[BulkAction, frozenset[State]] = {
    BulkAction.CANCEL: LIVE,
    BulkAction.RETRY: frozenset({State.FAILED, State.DEAD_LETTER}),
    BulkAction.DELETE: TERMINAL,
    BulkAction.REPRIORITISE: WAITING,
    BulkAction.RELEASE: frozenset({State.PENDING}),
}
"""The states in which an action can change a job; a filter selects no others."""

OPTIONS: Mapping[BulkAction, frozenset[str]] = {
    BulkAction.CANCEL: frozenset({"reason", "force"}),
    BulkAction.RETRY: frozenset({"reset_attempts", "priority", "delay"}),
    BulkAction.DELETE: frozenset(),
    BulkAction.REPRIORITISE: frozenset({"priority"}),
    BulkAction.RELEASE: frozenset(),
}
"""The options of each action."""


class BulkProblem(msgspec.Struct, frozen=True):
    """A job that could not be changed, and why."""

    job_id: str
    message: str


class BulkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs an operation would look at, if it started now with this ``as_of``."""

    action: BulkAction
    as_of: Instant
    """Give it to the operation: jobs that match later, or change later, are not touched."""
    matched: int
    matched_exact: bool
    """False: there are at least so many."""
    examples: tuple[str, ...] = ()
    """The ids of the jobs that were submitted first."""


class BulkCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of some jobs."""

    done: int = 0
    skipped: int = 0
    failed: int = 0
    problems: tuple[BulkProblem, ...] = ()

    def plus(self, other: BulkCounts) -> BulkCounts:
        """Return the sums, with the first problems."""
        return BulkCounts(
            done=self.done + other.done,
            skipped=self.skipped + other.skipped,
            failed=self.failed + other.failed,
            problems=(*self.problems, *other.problems)[:MOST_PROBLEMS],
        )


def with_problems(done: int, skipped: int, problems: Iterable[tuple[str, str]]) -> BulkCounts:
    """Return counts with every problem counted and the first ones named."""
    found = list(problems)
    named = tuple(BulkProblem(i, text[:MOST_MESSAGE]) for i, text in found[:MOST_PROBLEMS])
    return BulkCounts(done=done, skipped=skipped, failed=len(found), problems=named)


class BulkOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation on many jobs: what was requested, by whom, and its progress."""

    id: str
    action: BulkAction
    filter: Mapping[str, object] | None = None
    """The filter that selects the jobs; None when ids were given."""
    id_count: int | None = None
    """How many ids were given; None when a filter was."""
    options: Mapping[str, object] = {}
    """The options of the action that were given, such as ``reason`` and ``priority``."""
    as_of: Instant
    """Jobs that matched or changed after this instant are not touched."""
    dry_run: bool = False
    """Whether it only counts: ``done`` is then what would change."""
    state: BulkState = BulkState.WAITING
    matched: int = 0
    """Jobs that it looks at; an estimate until it has completed."""
    matched_exact: bool = True
    """False: there are at least so many."""
    done: int = 0
    """Jobs that were changed."""
    skipped: int = 0
    """Jobs that it left alone: they changed after ``as_of``, or there was nothing to change."""
    failed: int = 0
    """Jobs that could not be changed, such as unknown ids."""
    problems: tuple[BulkProblem, ...] = ()
    """Some of those, and why."""
    by: str = ""
    created_at: Instant
    started_at: Instant | None = None
    updated_at: Instant
    finished_at: Instant | None = None
    error: str = ""

    @property
    def ended(self) -> bool:
        """Whether it changes nothing any more."""
        return self.state in ENDED

    @property
    def examined(self) -> int:
        """Jobs that it has dealt with."""
        return self.done + self.skipped + self.failed

    def after(self, counts: BulkCounts, *, now: datetime) -> BulkOperation:
        """Return the operation when further jobs have been dealt with."""
        own = BulkCounts(
            done=self.done, skipped=self.skipped, failed=self.failed, problems=self.problems
        )
        sums = own.plus(counts)
        examined = sums.done + sums.skipped + sums.failed
        return replace(
            self,
            done=sums.done,
            skipped=sums.skipped,
            failed=sums.failed,
            problems=sums.problems,
            matched=max(self.matched, examined),
            updated_at=now,
        )

    def finished(self, state: BulkState, *, now: datetime, error: str = "") -> BulkOperation:
        """Return the operation when it has ended; one that completed knows how many matched."""
        exact = state is BulkState.COMPLETED
        return replace(
            self,
            state=state,
            matched=self.examined if exact else self.matched,
            matched_exact=exact or self.matched_exact,
            updated_at=now,
            finished_at=now,
            error=error,
        )
