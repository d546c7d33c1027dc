"""Failures as JSON: failed jobs, their causes and their attempts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.api.jobs import FailureInfo
from holdfast.model import results
from holdfast.model.job import State


class AttemptBody(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt."""

    attempt: int
    attempt_id: str
    previous_attempt_id: str | None
    worker_id: str
    started_at: datetime
    finished_at: datetime | None
    result: results.AttemptResult
    failure: FailureInfo | None = None

    @classmethod
    def of(cls, one: results.AttemptInfo, *, traces: bool) -> AttemptBody:
        """Return the body for an attempt."""
        return cls(
            attempt=one.attempt,
            attempt_id=one.attempt_id,
            previous_attempt_id=one.previous_attempt_id,
            worker_id=one.worker,
            started_at=one.started_at,
            finished_at=one.finished_at,
            result=one.result,
            failure=FailureInfo.of(one.failure, traces=traces) if one.failure else None,
        )

    def value(self) -> results.AttemptInfo:
        """Return the library's value."""
        return results.AttemptInfo(
            attempt=self.attempt,
            attempt_id=self.attempt_id,
            previous_attempt_id=self.previous_attempt_id,
            worker=self.worker_id,
            started_at=self.started_at,
            finished_at=self.finished_at,
            result=self.result,
            failure=self.failure.value() if self.failure else None,
        )


class FailureBody(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of a job, attempt by attempt."""

    job_id: str
    type: str
    queue: str
    final_state: State
    total_attempts: int
    failure: FailureInfo | None
    attempts: tuple[AttemptBody, ...] = ()

    @classmethod
    def of(cls, details: results.FailureDetails, *, traces: bool = True) -> FailureBody:
        """Return the body for the details of a failure."""
        failure = details.failure
        return cls(
            job_id=details.job_id,
            type=details.type,
            queue=details.queue,
            final_state=details.final_state,
            total_attempts=details.total_attempts,
            failure=FailureInfo.of(failure, traces=traces) if failure else None,
            attempts=tuple(AttemptBody.of(a, traces=traces) for a in details.attempts),
        )

    def value(self) -> results.FailureDetails:
        """Return the library's value."""
        return results.FailureDetails(
            job_id=self.job_id,
            type=self.type,
            queue=self.queue,
            final_state=self.final_state,
            total_attempts=self.total_attempts,
            failure=self.failure.value() if self.failure else None,
            attempts=tuple(a.value() for a in self.attempts),
        )


class FailureSearchBody(msgspec.Struct, frozen=True, kw_only=True):
    """One page of failed jobs, and the number of all matching failures by cause."""

    failures: tuple[FailureBody, ...]
    total_count: int
    next_cursor: str | None
    by_category: Mapping[str, int]
    by_code: Mapping[str, int]
    by_type: Mapping[str, int]

    @classmethod
    def of(cls, page: results.FailureSearchResult) -> FailureSearchBody:
        """Return the body for a page."""
        return cls(
            failures=tuple(FailureBody.of(one) for one in page.failures),
            total_count=page.total_count,
            next_cursor=page.next_cursor,
            by_category=page.by_category,
            by_code=page.by_code,
            by_type=page.by_type,
        )

    def value(self) -> results.FailureSearchResult:
        """Return the library's value."""
        return results.FailureSearchResult(
            failures=tuple(one.value() for one in self.failures),
            total_count=self.total_count,
            next_cursor=self.next_cursor,
            by_category=self.by_category,
            by_code=self.by_code,
            by_type=self.by_type,
        )
