"""What becomes of instants when the store's clock is set back or forward.

An instant that lies further in the future than its own span from now was written before the clock
was set back. It moves to that span from now: a lease to its length, a delay or backoff to what it
was. An instant that a submission named stays.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from holdfast.model.job import Job, State, read_extra

TOLERANCE = timedelta(seconds=2)
"""Clocks of servers and processes differ by less; a larger difference is a change."""


class ClockChange(msgspec.Struct, frozen=True):
    """A change of the store's clock: what it should have shown, and what it showed."""

    expected: datetime
    shown: datetime

    @property
    def by(self) -> timedelta:
        """How far the clock was set forward; negative when it was set back."""
        return self.shown - self.expected

    def skipped_end_of(self, job: Job) -> bool:
        """Whether the lease of a job ended in the span that the clock skipped."""
        until = job.lease.until if job.lease else None
        return until is not None and self.expected < until <= self.shown


def is_lease_ahead(job: Job, now: datetime) -> bool:
    """Whether the lease of a running job ends later than any renewal could have set it."""
    if job.state is not State.RUNNING or job.lease is None or job.lease.until is None:
        return False
    return job.lease.until > now + job.lease_ttl + TOLERANCE


def redated(job: Job, *, now: datetime) -> Job:
    """Return a delayed or retrying job that is dated in the future with its wait begun now."""
    if job.state not in (State.DELAYED, State.RETRYING) or job.due_at is None:
        return job
    if job.updated_at <= now + TOLERANCE or job.due_at == read_extra(job.extra).scheduled_at:
        return job
    due_at = now + max(timedelta(0), job.due_at - job.updated_at)
    return replace(job, due_at=due_at, updated_at=now, revision=job.revision + 1)
