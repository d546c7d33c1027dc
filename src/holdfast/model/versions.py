"""Jobs whose payload needs a worker of another version: they wait and use up no attempt."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.job import Failure, FailureCategory, Job, State

MISMATCH = "PAYLOAD_MISMATCH"
"""The code of a failure whose payload does not fit the task of the worker that claimed it."""
INVALID = "PAYLOAD_INVALID"
"""The code when no other worker is waited for."""
FIRST_WAIT = timedelta(seconds=0.5)
LONGEST_WAIT = timedelta(minutes=1)
SHORT_WAITS, MOST_DOUBLINGS = 4, 7
"""Beside a worker that can run it, a job meets that one within a few claims: these wait briefly."""
PATIENCE = timedelta(days=7)
"""How long after its submission a job waits at most, if its lifetime is longer."""


def awaits_version(job: Job) -> bool:
    """Whether a job waits for a worker of another version."""
    return job.failure is not None and job.failure.code == MISMATCH and job.state is State.RETRYING


def awaiting_version(job: Job, failure: Failure, *, now: datetime, jitter: float = 0.0) -> Job:
    """RUNNING -> RETRYING for a worker of another version, without using up an attempt.

    After a few claims in vain the wait doubles with each. After the job's lifetime, or a week,
    it fails.
    """
    if now >= min(job.expires_at, job.created_at + PATIENCE):
        final = replace(failure, category=FailureCategory.PERMANENT, code=INVALID)
        return lifecycle.after_failure(job, final, now=now)
    in_vain = max(0, job.lease_version - job.attempt)
    doublings = max(0, min(in_vain + 1 - SHORT_WAITS, MOST_DOUBLINGS))
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2**doublings)
    back = lifecycle.postponed(job, wait * (1 + jitter / 4), now=now, reason=failure.message)
    if back.state is not State.RETRYING:  # it was cancelled meanwhile
        return back
    worker = job.lease.worker if job.lease else ""
    noted = replace(failure, at=now, attempt=job.attempt, worker=worker)
    return replace(back, failure=noted)
