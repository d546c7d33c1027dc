"""Operations that change jobs: decide with the lifecycle, swap under the fence, decide again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from holdfast.errors import Fault, NotFoundError, ValidationError
from holdfast.model import lifecycle
from holdfast.model.job import TERMINAL, Failure, Job, Priority, State
from holdfast.model.payload import clean
from holdfast.model.results import (
    CancellationResult,
    CancellationStatus,
    DeletionResult,
    DeletionStatus,
    ReleaseResult,
    ReleaseStatus,
    RetryResult,
    RetryStatus,
)
from holdfast.model.times import Span, parse_duration
from holdfast.model.validation import MAX_KEY
from holdfast.operations.dependents import release_dependents
from holdfast.operations.failure_groups import note_failures
from holdfast.store import Change, Store

DECISIONS = 10
"""How often a decision is made again on a job that changed before it was written."""

Decided = tuple[Job | None, Job | None]
"""A job before and after a decision: twice the same when there was nothing to change."""
Decide = Callable[[int, Job, datetime], Job]
"""Returns what becomes of a job, given its place and the store's time; itself for no change."""


class Decisions(NamedTuple):
    """What was decided and written, one entry per job."""

    jobs: list[Decided]
    has_dependents: bool
    """Whether a job that ended may release others: ``release_dependents`` finds them."""


async def decide_and_swap(store: Store, jobs: Sequence[Job | None], decide: Decide) -> Decisions:
    """Decide on jobs and write them under their fences.

    Where a job changed meanwhile, decide again on what it has become. A job that the store does
    not let complete fails.
    """
    before, after = list(jobs), list(jobs)
    undecided: Sequence[int] = range(len(before))
    refused: dict[int, Failure | None] = {}
    has_dependents, decide_now = False, decide
    for _ in range(DECISIONS):
        places, changes, now = list[int](), list[Change](), store.now()
        for i in undecided:
            job = before[i]
            decided = after[i] = None if job is None else decide_now(i, job, now)
            if job is not None and decided is not None and decided is not job:
                places.append(i)
                changes.append(Change(job, decided))
        undecided = []
        for i, answer in zip(places, await store.swap(changes) if changes else (), strict=True):
            has_dependents = has_dependents or answer.has_dependents
            if not answer.written:
                before[i] = answer.job
                undecided.append(i)
                refused[i] = answer.refused
        if not undecided:
            if failed := [job for job in after if job is not None and job.failure is not None]:
                await note_failures(store, failed)
            return Decisions(list(zip(before, after, strict=True)), has_dependents)
        decide_now = partial(_decide_again, decide, refused)
    raise RuntimeError(f"jobs keep changing: {len(undecided)}")  # pragma: no cover


def _decide_again(
    decide: Decide, refused: Mapping[int, Failure | None], i: int, job: Job, now: datetime
) -> Job:
    failure = refused[i]
    return (
        decide(i, job, now) if failure is None else lifecycle.after_failure(job, failure, now=now)
    )


class Changes:
    """Operations that change stored jobs."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def cancel(
        self, job_id: str, *, reason: str = "", force: bool = False
    ) -> CancellationResult:
        """Cancel a waiting job; request a running one to stop (``force`` interrupts it)."""
        return (await self._cancel_all([job_id], reason, force=force))[0]

    async def retry(
        self,
        job_id: str,
        *,
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
    ) -> RetryResult:
        """Queue a failed job again, at an operator's request."""
        decide = retry_decision(reset_attempts=reset_attempts, priority=priority, delay=delay)
        before, after = await self._decide(job_id, decide)
        if before is None or after is None:
            return RetryResult(job_id=job_id, status=RetryStatus.NOT_FOUND)
        if after.state is State.PENDING and after is not before:
            after = await self.job(job_id)
        if after is before:
            return RetryResult(
                job_id=job_id, status=RetryStatus.NOT_RETRIABLE, new_state=before.state
            )
        return RetryResult(
            job_id=job_id,
            status=RetryStatus.QUEUED,
            new_state=after.state,
            scheduled_for=after.due_at or after.scheduled_at,
        )

    async def release(self, job_id: str) -> ReleaseResult:
        """Release a held job."""
        before, after = await self._decide(
            job_id, lambda job, now: lifecycle.released(job, now=now)
        )
        if before is None or after is None:
            return ReleaseResult(job_id=job_id, status=ReleaseStatus.NOT_FOUND)
        status = ReleaseStatus.NOT_HELD if after is before else ReleaseStatus.RELEASED
        if status is ReleaseStatus.RELEASED and before.depends_on:
            await release_dependents(self.store)
            after = await self.job(job_id)
        return ReleaseResult(job_id=job_id, status=status, new_state=after.state)

    async def delete(self, job_id: str) -> DeletionResult:
        """Delete an ended job that no live job depends on."""
        (job,) = await self.store.get([job_id])
        if job is None:
            status = DeletionStatus.NOT_FOUND
        elif job.state not in TERMINAL:
            status = DeletionStatus.NOT_ENDED
        elif (await self.store.delete([job_id]))[0]:
            status = DeletionStatus.DELETED
        else:
            status = DeletionStatus.NEEDED
        return DeletionResult(job_id=job_id, status=status)

    async def job(self, job_id: str) -> Job:
        """Return a job; NotFoundError when there is none."""
        (job,) = await self.store.get([job_id])
        if job is None:
            raise NotFoundError(job_id)
        return job

    async def _cancel_all(
        self, ids: Sequence[str], reason: str, *, force: bool
    ) -> list[CancellationResult]:
        reason = clean(reason, MAX_KEY)
        decided = await self._decide_all(
            ids,
            lambda job, now: lifecycle.cancel_requested(job, reason=reason, force=force, now=now),
        )
        return [
            _cancellation(job_id, before, after, reason)
            for job_id, (before, after) in zip(ids, decided, strict=True)
        ]

    async def _decide(self, job_id: str, decide: Callable[[Job, datetime], Job]) -> Decided:
        return (await self._decide_all([job_id], decide))[0]

    async def _decide_all(
        self, ids: Sequence[str], decide: Callable[[Job, datetime], Job]
    ) -> list[Decided]:
        decisions = await decide_and_swap(
            self.store, await self.store.get(ids), lambda _, job, now: decide(job, now)
        )
        if decisions.has_dependents:
            await release_dependents(self.store)
        return decisions.jobs


def retry_decision(
    *, reset_attempts: bool, priority: Priority | str | int | None, delay: Span
) -> Callable[[Job, datetime], Job]:
    """Check how jobs are to be retried; return what becomes of each, itself if it did not fail."""
    wait = read_span("delay", delay)
    level = None if priority is None else priority_level(priority)

    def decide(job: Job, now: datetime) -> Job:
        if job.state not in (State.FAILED, State.DEAD_LETTER):
            return job
        return lifecycle.reopened(
            job, now=now, reset_attempts=reset_attempts, priority=level, delay=wait
        )

    return decide


def _cancellation(
    job_id: str, before: Job | None, after: Job | None, reason: str
) -> CancellationResult:
    if before is None or after is None:
        return CancellationResult(job_id=job_id, status=CancellationStatus.NOT_FOUND)
    if before.state in TERMINAL:
        status, message = CancellationStatus.ALREADY_COMPLETE, f"already {before.state}"
    elif after.state is State.CANCELLED:
        status, message = CancellationStatus.CANCELLED, reason
    else:
        status = CancellationStatus.CANCEL_REQUESTED
        force = after.cancel is not None and after.cancel.force
        message = "it is being stopped" if force else "its next checkpoint will stop it"
    return CancellationResult(
        job_id=job_id, status=status, previous_state=before.state, message=message
    )


def read_span(field: str, value: Span) -> timedelta:
    """Read a duration given to an operation; ValidationError names the field."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValidationError([Fault(field, "INVALID_DURATION", str(error))]) from None


def priority_level(value: Priority | str | int) -> int:
    """Read a priority given to an operation; ValidationError names the levels."""
    try:
        return int(Priority[value]) if isinstance(value, str) else int(Priority(value))
    except (KeyError, ValueError):
        levels = ", ".join(p.name for p in Priority)
        message = f"must be one of {levels}, got {value!r:.60}"
        raise ValidationError([Fault("priority", "INVALID", message)]) from None


__all__ = [
    "Changes",
    "Decide",
    "Decisions",
    "decide_and_swap",
    "priority_level",
    "read_span",
    "retry_decision",
]
