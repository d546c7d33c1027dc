"""The execution timeout of an attempt, for workers that cannot be interrupted.

A worker of the library interrupts its own handlers. For a worker over HTTP the service fails an
attempt that is past its deadline: when the worker calls, or when its lease ends after that.
"""

from __future__ import annotations

from datetime import datetime

from holdfast.model.job import Failure, FailureCategory, Job
from holdfast.model.lifecycle import has_answered

REMOTE = "http-"
"""The lease tokens of workers over HTTP begin with this."""


def attempt_deadline(job: Job) -> datetime | None:
    """Return when the newest attempt must have ended; None when there is none."""
    if job.started_at is None:
        return None
    return min(job.started_at + job.timeout, job.expires_at)


def is_overdue(job: Job, now: datetime) -> bool:
    """Whether the newest attempt is past its deadline."""
    deadline = attempt_deadline(job)
    return deadline is not None and now >= deadline


def outlived_deadline(job: Job) -> bool:
    """Whether a worker over HTTP held the job beyond its deadline, by its lease."""
    lease = job.lease
    if lease is None or lease.until is None or not lease.token.startswith(REMOTE):
        return False
    return is_overdue(job, lease.until)


def has_timed_out(job: Job, token: str) -> bool:
    """Whether the attempt under ``token`` ended by its timeout."""
    failure = job.failure
    return (
        has_answered(job, token)
        and failure is not None
        and failure.category is FailureCategory.TIMEOUT
    )


def timeout_failure(seconds: float, host: str = "") -> Failure:
    """Return the failure of an attempt that took too long."""
    return Failure(
        category=FailureCategory.TIMEOUT,
        message=f"execution took longer than {seconds:g} s",
        code="EXECUTION_TIMEOUT",
        host=host,
    )
