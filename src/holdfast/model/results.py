"""The results of client operations: the same values in the library, over HTTP and in the CLI.

Expected statuses (duplicate, already complete, not found) are values here, never exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.model.job import Attempt, Event, FailureCategory, Job, State
from holdfast.model.removal import removal_warnings
from holdfast.model.status import FailureInfo, JobStatus


class SubmissionStatus(StrEnum):
    """The outcome of a submission."""

    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    REJECTED = "REJECTED"


class SubmissionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one submission."""

    job_id: str
    status: SubmissionStatus
    state: State | None = None
    created_at: datetime | None = None
    scheduled_for: datetime | None = None
    existing_job_id: str | None = None
    existing_job_deleted: bool = False
    """The job that has the key was deleted; the key holds until its window ends."""
    error: Exception | None = None
    """Why it was rejected, in a batch that is not atomic."""
    warnings: tuple[str, ...] = ()
    """What is allowed but may harm, such as an option that keeps very many jobs."""


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch."""

    total: int
    accepted: int
    rejected: int
    results: tuple[SubmissionResult, ...]


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs match a filter."""

    by_state: Mapping[State, int]
    """The states in which jobs match."""
    total: int
    total_exact: bool = True
    """False: there are at least so many."""
    at_least: tuple[State, ...] = ()
    """The states that may have more jobs."""
    complete: bool = True
    """False: only the newest jobs were counted by state, and any state may have more."""


class JobSearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs."""

    jobs: tuple[JobStatus, ...]
    total_count: int
    total_exact: bool
    next_cursor: str | None
    has_more: bool


class CancellationStatus(StrEnum):
    """The outcome of a cancellation."""

    CANCELLED = "CANCELLED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    ALREADY_COMPLETE = "ALREADY_COMPLETE"
    NOT_FOUND = "NOT_FOUND"


class CancellationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one cancellation."""

    job_id: str
    status: CancellationStatus
    previous_state: State | None = None
    message: str = ""


class BatchCancellationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of cancelling many jobs."""

    requested: int
    cancelled: int
    skipped: int
    failed: int
    errors: tuple[CancellationResult, ...] = ()
    dry_run: bool = False


class BatchRetryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of retrying many jobs."""

    requested: int
    retried: int
    skipped: int
    failed: int
    errors: tuple[RetryResult, ...] = ()
    dry_run: bool = False


class BatchDeletionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of deleting many jobs."""

    requested: int
    deleted: int
    skipped: int
    failed: int
    errors: tuple[DeletionResult, ...] = ()
    dry_run: bool = False


class AttemptResult(StrEnum):
    """The outcome of one attempt."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    RELEASED = "RELEASED"
    RUNNING = "RUNNING"


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt as an operator sees it."""

    attempt: int
    attempt_id: str
    previous_attempt_id: str | None
    worker_id: str
    started_at: datetime
    finished_at: datetime | None
    result: AttemptResult
    failure: FailureInfo | None = None


class FailureDetails(msgspec.Struct, frozen=True, kw_only=True):
    """How a job failed, in its newest attempt and in all earlier ones."""

    job_id: str
    type: str
    queue: str
    final_state: State
    total_attempts: int
    failure: FailureInfo | None
    attempts: tuple[AttemptInfo, ...] = ()


class FailureSearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One page of failures, with counts over all that match, by category, code and type."""

    failures: tuple[FailureDetails, ...]
    total_count: int
    next_cursor: str | None
    by_category: Mapping[str, int]
    by_code: Mapping[str, int]
    by_type: Mapping[str, int]


class RetryStatus(StrEnum):
    """The outcome of an operator's retry."""

    QUEUED = "QUEUED"
    NOT_RETRIABLE = "NOT_RETRIABLE"
    NOT_FOUND = "NOT_FOUND"


class RetryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a retry."""

    job_id: str
    status: RetryStatus
    new_state: State | None = None
    scheduled_for: datetime | None = None


class ReleaseStatus(StrEnum):
    """The outcome of releasing a held job."""

    RELEASED = "RELEASED"
    NOT_HELD = "NOT_HELD"
    NOT_FOUND = "NOT_FOUND"


class ReleaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a release."""

    job_id: str
    status: ReleaseStatus
    new_state: State | None = None


class UpdateStatus(StrEnum):
    """The outcome of changing a job's metadata."""

    UPDATED = "UPDATED"
    NOT_WAITING = "NOT_WAITING"
    """The priority changes only while the job waits."""
    ENDED = "ENDED"
    """The callback address changes only until the job has ended."""
    NOT_FOUND = "NOT_FOUND"


class UpdateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of changing a job's metadata: all of it or, unless UPDATED, nothing."""

    job_id: str
    status: UpdateStatus
    state: State | None = None


class DeletionStatus(StrEnum):
    """The outcome of a deletion."""

    DELETED = "DELETED"
    NOT_ENDED = "NOT_ENDED"
    NEEDED = "NEEDED"
    NOT_FOUND = "NOT_FOUND"


class DeletionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a deletion; only ended jobs that no live job depends on can be deleted."""

    job_id: str
    status: DeletionStatus


class RegistrationStatus(StrEnum):
    """The outcome of registering a handler."""

    REGISTERED = "REGISTERED"
    REPLACED = "REPLACED"
    INVALID = "INVALID"


class RegistrationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of registering a handler."""

    type: str
    status: RegistrationStatus
    previous: bool = False
    message: str = ""


def submission_result(job: Job) -> SubmissionResult:
    """Return the result for a job that was accepted."""
    options = (job.remove_on_complete, job.remove_on_fail)
    return SubmissionResult(
        job_id=job.id,
        status=SubmissionStatus.ACCEPTED,
        state=job.state,
        created_at=job.created_at,
        scheduled_for=job.due_at or job.scheduled_at,
        warnings=removal_warnings(*options) if any(options) else (),
    )


def attempt_info(attempt: Attempt) -> AttemptInfo:
    """Return one attempt as an operator sees it."""
    return AttemptInfo(
        attempt_id=attempt.id,
        previous_attempt_id=attempt.previous_id,
        attempt=attempt.number,
        worker_id=attempt.worker,
        started_at=attempt.started_at,
        finished_at=attempt.finished_at,
        result=_attempt_result(attempt),
        failure=FailureInfo.of(attempt.failure) if attempt.failure else None,
    )


def _attempt_result(attempt: Attempt) -> AttemptResult:
    match attempt.ended_by:
        case None:
            return AttemptResult.RUNNING
        case Event.COMPLETE:
            return AttemptResult.SUCCESS
        case Event.CANCEL:
            return AttemptResult.CANCELLED
        case Event.GIVE_BACK | Event.WAIT:
            return AttemptResult.RELEASED
        case _ if attempt.failure and attempt.failure.category is FailureCategory.TIMEOUT:
            return AttemptResult.TIMEOUT
        case _:
            return AttemptResult.FAILURE


__all__ = [
    "AttemptInfo",
    "AttemptResult",
    "BatchCancellationResult",
    "BatchDeletionResult",
    "BatchResult",
    "BatchRetryResult",
    "CancellationResult",
    "CancellationStatus",
    "DeletionResult",
    "DeletionStatus",
    "FailureDetails",
    "FailureSearchResult",
    "JobSearchResult",
    "RegistrationResult",
    "RegistrationStatus",
    "ReleaseResult",
    "ReleaseStatus",
    "RetryResult",
    "RetryStatus",
    "SubmissionResult",
    "SubmissionStatus",
]
