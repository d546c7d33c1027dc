"""Jobs and events as JSON: ``of`` makes a body from a value of the library, ``value`` reads one.

Values without a body here are sent as they are: their fields are those of the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from holdfast.model import results
from holdfast.model.job import (
    Event,
    Failure,
    FailureCategory,
    Priority,
    Progress,
    State,
    Transition,
)
from holdfast.model.profiles import DocumentMetadata
from holdfast.model.reserved import RESERVED
from holdfast.store import EventKind, JobEvent

MILLISECOND = timedelta(milliseconds=1)


class ProgressInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The progress that a job reported."""

    percent: int
    message: str
    updated_at: datetime

    @classmethod
    def of(cls, progress: Progress) -> ProgressInfo:
        """Return the body for progress."""
        return cls(percent=progress.percent, message=progress.message, updated_at=progress.at)

    def value(self) -> Progress:
        """Return the library's value."""
        return Progress(self.percent, self.message, self.updated_at)


class FailureInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How one attempt failed."""

    category: FailureCategory
    message: str
    code: str = ""
    stack_trace: str = ""
    context: Mapping[str, str] = {}
    attempt: int = 0
    timestamp: datetime | None = None
    duration_ms: int | None = None
    worker_id: str = ""
    host: str = ""

    @classmethod
    def of(cls, failure: Failure, *, traces: bool = True) -> FailureInfo:
        """Return the body for a failure; without ``traces`` it hides details of the handler."""
        return cls(
            category=failure.category,
            message=failure.message,
            code=failure.code,
            stack_trace=failure.stack_trace if traces else "",
            context=failure.context if traces else {},
            attempt=failure.attempt,
            timestamp=failure.at,
            duration_ms=milliseconds(failure.duration),
            worker_id=failure.worker,
            host=failure.host if traces else "",
        )

    def value(self) -> Failure:
        """Return the library's value."""
        return Failure(
            category=self.category,
            message=self.message,
            code=self.code,
            stack_trace=self.stack_trace,
            context=self.context,
            attempt=self.attempt,
            at=self.timestamp,
            duration=span(self.duration_ms),
            worker=self.worker_id,
            host=self.host,
        )


class ResultBody(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job."""

    status: results.ResultStatus
    output: object = None
    error: FailureInfo | None = None
    duration_ms: int | None = None
    attempt: int = 0


class StateTransition(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a job's state."""

    from_state: State | None
    to_state: State
    timestamp: datetime
    reason: str
    event: Event
    attempt: int = 0
    lease_version: int = 0
    worker_id: str = ""
    failure: FailureInfo | None = None

    @classmethod
    def of(cls, edge: Transition, *, traces: bool = True) -> StateTransition:
        """Return the body for a transition."""
        return cls(
            from_state=edge.from_state,
            to_state=edge.to_state,
            timestamp=edge.at,
            reason=edge.reason,
            event=edge.event,
            attempt=edge.attempt,
            lease_version=edge.lease_version,
            worker_id=edge.worker,
            failure=FailureInfo.of(edge.failure, traces=traces) if edge.failure else None,
        )

    def value(self) -> Transition:
        """Return the library's value."""
        return Transition(
            event=self.event,
            from_state=self.from_state,
            to_state=self.to_state,
            at=self.timestamp,
            reason=self.reason,
            attempt=self.attempt,
            lease_version=self.lease_version,
            worker=self.worker_id,
            failure=self.failure.value() if self.failure else None,
        )


class JobBody(msgspec.Struct, frozen=True, kw_only=True):
    """A job."""

    job_id: str
    type: str
    queue: str
    state: State
    attempt: int
    max_attempts: int
    priority: str
    """CRITICAL, HIGH, NORMAL, LOW or BULK."""
    priority_level: int
    created_at: datetime
    updated_at: datetime
    scheduled_for: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    progress: ProgressInfo | None = None
    result: ResultBody | None = None
    history: tuple[StateTransition, ...] | None = None
    failure: FailureInfo | None = None
    tags: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    correlation_id: str | None = None
    cancel_requested: bool = False
    held: bool = False
    depends_on: tuple[str, ...] = ()
    spawned_by: str | None = None
    worker_id: str | None = None
    profile: str = "standard"
    profile_state: str = ""
    """The state in the words of the job's profile."""
    document: DocumentMetadata | None = None

    @classmethod
    def of(cls, job: results.JobStatus, *, traces: bool = True) -> JobBody:
        """Return the body for a job."""
        return cls(
            **{name: getattr(job, name) for name in _SAME_NAMES},
            priority=priority_name(job.priority),
            priority_level=job.priority,
            progress=ProgressInfo.of(job.progress) if job.progress else None,
            result=_result(job.result, traces=traces),
            history=_edges(job.history, traces=traces),
            failure=FailureInfo.of(job.failure, traces=traces) if job.failure else None,
            tags=public_tags(job.tags),
            headers=job.headers,
            worker_id=job.worker,
            profile_state=job.word,
        )

    def value(self) -> results.JobStatus:
        """Return the library's value."""
        edges = self.history
        return results.JobStatus(
            **{name: getattr(self, name) for name in _SAME_NAMES},
            priority=self.priority_level,
            progress=self.progress.value() if self.progress else None,
            result=_result_value(self.result),
            history=None if edges is None else tuple(edge.value() for edge in edges),
            failure=self.failure.value() if self.failure else None,
            tags=self.tags,
            headers=self.headers,
            worker=self.worker_id,
            word=self.profile_state,
        )


_SAME_NAMES = (
    *("job_id", "type", "queue", "state", "attempt", "max_attempts", "created_at", "updated_at"),
    *("scheduled_for", "started_at", "completed_at", "correlation_id", "cancel_requested", "held"),
    *("depends_on", "spawned_by", "profile", "document"),
)


class EventBody(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a job: a transition or progress."""

    cursor: str
    job_id: str
    type: str
    queue: str
    kind: EventKind
    timestamp: datetime
    transition: StateTransition | None = None
    progress: ProgressInfo | None = None

    @classmethod
    def of(cls, event: JobEvent, *, traces: bool = True) -> EventBody:
        """Return the body for an event."""
        edge, progress = event.transition, event.progress
        return cls(
            cursor=event.cursor,
            job_id=event.job_id,
            type=event.type,
            queue=event.queue,
            kind=event.kind,
            timestamp=event.at,
            transition=StateTransition.of(edge, traces=traces) if edge else None,
            progress=ProgressInfo.of(progress) if progress else None,
        )

    def value(self) -> JobEvent:
        """Return the library's value."""
        return JobEvent(
            cursor=self.cursor,
            job_id=self.job_id,
            type=self.type,
            queue=self.queue,
            kind=self.kind,
            at=self.timestamp,
            transition=self.transition.value() if self.transition else None,
            progress=self.progress.value() if self.progress else None,
        )


def priority_name(level: int) -> str:
    """Return the name of a priority; BULK for higher numbers, which BullMQ may have written."""
    return Priority(min(level, Priority.BULK)).name


def public_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags without reserved ones."""
    return {name: value for name, value in tags.items() if not name.startswith(RESERVED)}


def milliseconds(duration: timedelta | None) -> int | None:
    """Return a duration in whole milliseconds."""
    return None if duration is None else duration // MILLISECOND


def span(duration_ms: int | None) -> timedelta | None:
    """Return whole milliseconds as a duration."""
    return None if duration_ms is None else duration_ms * MILLISECOND


def _edges(
    edges: tuple[Transition, ...] | None, *, traces: bool
) -> tuple[StateTransition, ...] | None:
    return None if edges is None else tuple(StateTransition.of(e, traces=traces) for e in edges)


def _result(result: results.JobResult | None, *, traces: bool) -> ResultBody | None:
    if result is None:
        return None
    return ResultBody(
        status=result.status,
        output=result.output,
        error=FailureInfo.of(result.error, traces=traces) if result.error else None,
        duration_ms=milliseconds(result.duration),
        attempt=result.attempt,
    )


def _result_value(result: ResultBody | None) -> results.JobResult | None:
    if result is None:
        return None
    return results.JobResult(
        status=result.status,
        output=result.output,
        error=result.error.value() if result.error else None,
        duration=span(result.duration_ms),
        attempt=result.attempt,
    )
