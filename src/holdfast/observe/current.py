"""The job whose handler runs here: in this task, thread or child process."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime

import msgspec

from holdfast.model.job import attempt_id, read_extra


class CurrentJob(msgspec.Struct, frozen=True, gc=False):
    """The job that runs here, as ``current_job`` returns it; it keeps no payload alive."""

    job_id: str
    """The same in every attempt."""
    type: str
    queue: str
    attempt: int
    """Which attempt this is, from 1."""
    correlation_id: str
    """The caller's tracing id; empty when there is none."""
    created_at: datetime
    started_at: datetime | None
    lease_version: int
    extra: bytes | None
    """The stored form of the headers."""

    @property
    def attempt_id(self) -> str:
        """The identity of this attempt."""
        return attempt_id(self.job_id, self.lease_version)

    @property
    def headers(self) -> Mapping[str, str]:
        """Context that came with the job; jobs that it spawns inherit it."""
        return read_extra(self.extra).headers


CURRENT_JOB: ContextVar[CurrentJob | None] = ContextVar("holdfast_job", default=None)
"""The job of this task or thread."""


def current_job() -> CurrentJob | None:
    """Return the job whose handler runs here, None outside of one.

    It works in handlers of every runner, in the functions that they call, in their middleware
    and dependencies, and in tasks that they start.
    """
    return CURRENT_JOB.get()
