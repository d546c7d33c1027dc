"""Jobs as clients see them: the same names and forms in the library, over HTTP and in the CLI.

Each value encodes to the JSON that the API documents. Nothing else describes a job to a client.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.job import (
    Encoding,
    Event,
    Failure,
    FailureCategory,
    Job,
    LogLine,
    Priority,
    Progress,
    State,
    Transition,
    attempt_limit,
    failure_text,
    read_extra,
)
from holdfast.model.payload import decode_result, json_text, result_text
from holdfast.model.profiles import PROFILES, STANDARD, DocumentMetadata, document_metadata
from holdfast.model.reserved import RESERVED

MILLISECOND = timedelta(milliseconds=1)


class ProgressInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The progress that a job reported."""

    percent: int
    message: str
    updated_at: datetime
    attempt: int = 0
    """The attempt that reported it, which may be an earlier one; 0 when it is not known."""

    @classmethod
    def of(cls, progress: Progress) -> Self:
        """Return progress as clients see it."""
        return cls(
            percent=progress.percent,
            message=progress.message,
            updated_at=progress.at,
            attempt=progress.attempt,
        )


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
    def of(cls, failure: Failure) -> Self:
        """Return a failure as clients see it."""
        return cls(
            category=failure.category,
            message=failure.message,
            code=failure.code,
            stack_trace=failure.stack_trace,
            context=failure.context,
            attempt=failure.attempt,
            timestamp=failure.at,
            duration_ms=milliseconds(failure.duration),
            worker_id=failure.worker,
            host=failure.host,
        )

    def __str__(self) -> str:
        return failure_text(self.code, self.message, self.category)


class ResultStatus(StrEnum):
    """Whether a job succeeded."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"


class OutputEncoding(StrEnum):
    """How an output is written in JSON."""

    JSON = "json"
    BASE64 = "base64"


def encoding_of(output: object) -> OutputEncoding:
    """Return how an output is written in JSON."""
    return OutputEncoding.BASE64 if isinstance(output, bytes) else OutputEncoding.JSON


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a job."""

    status: ResultStatus
    output: object = None
    """What the handler returned; in JSON, bytes are a string of base64."""
    output_encoding: OutputEncoding = OutputEncoding.JSON
    """base64 when the output is bytes."""
    error: FailureInfo | None = None
    duration_ms: int | None = None
    attempt: int = 0
    output_omitted: int = 0
    """Above 0: a list leaves this output of so many bytes out."""
    output_url: str | None = None
    """Over HTTP: where an output that was left out can be read."""

    def __post_init__(self) -> None:
        """Decode bytes that were read from JSON."""
        if self.output_encoding is OutputEncoding.BASE64 and isinstance(self.output, str):
            force_setattr(self, "output", b64decode(self.output))


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
    def of(cls, edge: Transition) -> Self:
        """Return a transition as clients see it."""
        return cls(
            from_state=edge.from_state,
            to_state=edge.to_state,
            timestamp=edge.at,
            reason=edge.reason,
            event=edge.event,
            attempt=edge.attempt,
            lease_version=edge.lease_version,
            worker_id=edge.worker,
            failure=FailureInfo.of(edge.failure) if edge.failure else None,
        )


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
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
    scheduled_at: datetime | None = None
    """When it became ready to run, the last time; None if it never was."""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    progress: ProgressInfo | None = None
    result: JobResult | None = None
    history: tuple[StateTransition, ...] | None = None
    failure: FailureInfo | None = None
    tags: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    correlation_id: str | None = None
    callback_url: str | None = None
    cancel_requested: bool = False
    held: bool = False
    depends_on: tuple[str, ...] = ()
    spawned_by: str | None = None
    worker_id: str | None = None
    profile: str = STANDARD.name
    profile_state: str = ""
    """The state in the words of the job's profile."""
    document: DocumentMetadata | None = None

    @property
    def output(self) -> object:
        """What the handler returned; None unless the job completed."""
        return self.result.output if self.result else None


class JobPayload(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a job: a JSON value, or bytes."""

    job_id: str
    payload: object
    payload_encoding: str = "json"
    """json, or base64 when the payload is bytes."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line that a job's handler logged."""

    timestamp: datetime
    level: str
    message: str
    attempt: int = 0
    fields: Mapping[str, str] = {}

    @classmethod
    def of(cls, line: LogLine) -> Self:
        """Return a line as clients see it."""
        return cls(
            timestamp=line.at,
            level=line.level,
            message=line.message,
            attempt=line.attempt,
            fields=line.fields,
        )


class EventKind(StrEnum):
    """The kind of an event."""

    TRANSITION = "transition"
    PROGRESS = "progress"


class EventInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a job: a transition or progress."""

    cursor: str
    job_id: str
    type: str
    queue: str
    kind: EventKind
    timestamp: datetime
    transition: StateTransition | None = None
    progress: ProgressInfo | None = None


def job_status(
    job: Job,
    *,
    with_result: bool = True,
    history: list[Transition] | None = None,
    omitted: int = 0,
    as_text: bool = False,
) -> JobStatus:
    """Return a job as clients see it.

    ``omitted`` are the bytes of a result that was not read. ``as_text`` leaves JSON undecoded,
    as ``msgspec.Raw``, for a value that is only sent on.
    """
    profile = PROFILES.get(job.profile, STANDARD)
    running = job.state is State.RUNNING and job.lease is not None
    return JobStatus(
        job_id=job.id,
        type=job.type,
        queue=job.queue,
        state=job.state,
        attempt=job.attempt,
        max_attempts=attempt_limit(job),
        priority=priority_name(job.priority),
        priority_level=job.priority,
        created_at=job.created_at,
        updated_at=job.updated_at,
        scheduled_for=job.due_at or job.scheduled_at,
        scheduled_at=job.scheduled_at,
        started_at=job.started_at,
        completed_at=job.finished_at,
        progress=ProgressInfo.of(job.progress) if job.progress else None,
        result=_result(job, omitted, as_text=as_text) if with_result else None,
        history=None if history is None else tuple(StateTransition.of(e) for e in history),
        failure=FailureInfo.of(job.failure) if job.failure else None,
        cancel_requested=job.cancel is not None,
        held=job.held,
        depends_on=job.depends_on,
        spawned_by=job.spawned_by or None,
        worker_id=job.lease.worker if running and job.lease else None,
        tags=public_tags(job.tags),
        headers=read_extra(job.extra).headers,
        correlation_id=job.correlation_id or None,
        callback_url=job.callback_url or None,
        profile=job.profile,
        profile_state=profile.word(job),
        document=document_metadata(job) if job.profile == "document" else None,
    )


def priority_name(level: int) -> str:
    """Return the name of a priority; BULK for higher numbers, which BullMQ may have written."""
    return Priority(min(level, Priority.BULK)).name


def public_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags without reserved ones."""
    return {name: value for name, value in tags.items() if not name.startswith(RESERVED)}


def job_payload(job: Job, *, as_text: bool = False) -> JobPayload:
    """Return what a job was submitted with; bytes that are no JSON as they are.

    ``as_text`` leaves JSON undecoded, as ``msgspec.Raw``.
    """
    if job.encoding is Encoding.JSON:
        read = json_text if as_text else msgspec.json.decode
        try:
            return JobPayload(job_id=job.id, payload=read(job.payload))
        except ValueError:
            pass  # a BullMQ client or a missing key
    return JobPayload(job_id=job.id, payload=bytes(job.payload), payload_encoding="base64")


def milliseconds(duration: timedelta | None) -> int | None:
    """Return a duration in whole milliseconds, 0 if the clock was set back meanwhile."""
    return None if duration is None else max(0, duration // MILLISECOND)


def _result(job: Job, omitted: int, *, as_text: bool) -> JobResult | None:
    if job.finished_at is None:
        return None
    if job.state is State.COMPLETED:
        duration = job.finished_at - job.started_at if job.started_at else None
        output = (result_text if as_text else decode_result)(job.result)
        return JobResult(
            status=ResultStatus.SUCCESS,
            output=output,
            output_encoding=encoding_of(output),
            duration_ms=milliseconds(duration),
            attempt=job.attempt,
            output_omitted=omitted,
        )
    return JobResult(
        status=ResultStatus.FAILURE,
        error=FailureInfo.of(job.failure) if job.failure else None,
        duration_ms=milliseconds(job.failure.duration) if job.failure else None,
        attempt=job.attempt,
    )
