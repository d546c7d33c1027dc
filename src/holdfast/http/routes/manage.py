"""Routes that change jobs: cancel, retry, update, release, delete."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from holdfast.errors import NotFoundError, ValidationError
from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import Field, duration, flag, text, whole
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.http.schemas import METADATA, PRIORITIES
from holdfast.http.submission_body import tag_faults
from holdfast.model.amendment import JobMetadata
from holdfast.model.job import Priority
from holdfast.model.results import (
    CancellationResult,
    DeletionResult,
    ReleaseResult,
    RetryResult,
    UpdateResult,
)
from holdfast.model.times import shown

NOT_FOUND = "NOT_FOUND"


async def cancel(call: Call) -> JsonResponse:
    """Cancel one job."""
    result = await call.operations.cancel(
        call.job_id,
        reason=str(call.fields.get("reason", "")),
        force=bool(call.fields.get("force", False)),
    )
    return _found(call, result)


async def retry(call: Call) -> JsonResponse:
    """Run a FAILED or DEAD_LETTER job again."""
    result = await call.operations.retry(
        call.job_id,
        reset_attempts=bool(call.fields.get("reset_attempts", False)),
        priority=cast("str | int | None", call.fields.get("priority")),
        delay=cast("timedelta", call.fields.get("delay", timedelta(0))),
    )
    return _found(call, result)


async def update(call: Call) -> JsonResponse:
    """Change a job's metadata."""
    metadata = {name: value for name, value in call.fields.items() if value is not None}
    tags = metadata.get("tags")
    if isinstance(tags, dict) and (faults := tag_faults(tags)):
        raise ValidationError(faults)
    return _found(call, await call.operations.update(call.job_id, **cast("JobMetadata", metadata)))


async def release(call: Call) -> JsonResponse:
    """Release a job that was submitted with hold."""
    return _found(call, await call.operations.release(call.job_id))


async def delete(call: Call) -> JsonResponse:
    """Delete an ended job."""
    return _found(call, await call.operations.delete(call.job_id))


def _found(
    call: Call,
    result: CancellationResult | RetryResult | UpdateResult | ReleaseResult | DeletionResult,
) -> JsonResponse:
    if result.status.value == NOT_FOUND:
        raise NotFoundError(call.job_id)
    return JsonResponse(result)


def _read_priority(value: object) -> object:
    value = whole(value)
    if isinstance(value, bool) or value not in [*PRIORITIES, *map(int, Priority)]:
        raise ValueError(f"must be one of {', '.join(PRIORITIES)}, got {shown(value)}")
    return value


REASON = text("reason", description="Recorded in the history.")
FORCE = flag("force", description="Interrupt a running job instead of asking it to stop.")
PRIORITY = Field(
    name="priority",
    schema={
        "anyOf": [
            {"type": "string", "enum": PRIORITIES},
            {"type": "integer", "minimum": 0, "maximum": 4},
        ]
    },
    read=_read_priority,
)
RETRY_FIELDS = (
    flag("reset_attempts", description="Start counting attempts from one."),
    PRIORITY,
    duration("delay"),
)
UPDATE_FIELDS = (
    *(Field(name=name, schema=schema) for name, schema in METADATA.items()),
    Field(name="priority", schema=PRIORITY.schema, read=whole),
)

ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/jobs/{job_id}/cancel",
        name="cancelJob",
        summary="Cancel a job",
        description="A waiting job is cancelled at once. A running job is asked to stop at its next"
        " checkpoint; with force it is interrupted.",
        handler=cancel,
        permission=Permission.CHANGE,
        body_fields=(REASON, FORCE),
        example={"reason": "no longer wanted", "force": False},
        response=CancellationResult,
        errors=(NOT_FOUND,),
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/{job_id}/retry",
        name="retryJob",
        summary="Run a FAILED or DEAD_LETTER job again",
        handler=retry,
        permission=Permission.OPERATE,
        body_fields=RETRY_FIELDS,
        example={"reset_attempts": True, "delay": "PT1M"},
        response=RetryResult,
        errors=(NOT_FOUND,),
        audited=True,
    ),
    Endpoint(
        method="PATCH",
        path="/api/v1/jobs/{job_id}",
        name="updateJob",
        summary="Change a job's metadata",
        description="Tags and correlation id change at any time, callback_url until the job has"
        " ended (else ENDED), priority while it waits, delay or scheduled_at until it is ready"
        " (else NOT_WAITING). Whatever is absent or null stays; an empty text removes. Everything"
        " given changes, or nothing.",
        handler=update,
        permission=Permission.OPERATE,
        body_fields=UPDATE_FIELDS,
        example={"tags": {"customer": "42"}, "priority": "HIGH"},
        response=UpdateResult,
        errors=(NOT_FOUND,),
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/{job_id}/release",
        name="releaseJob",
        summary="Release a job that was submitted with hold",
        handler=release,
        permission=Permission.CHANGE,
        body_fields=(),
        response=ReleaseResult,
        errors=(NOT_FOUND,),
        audited=True,
    ),
    Endpoint(
        method="DELETE",
        path="/api/v1/jobs/{job_id}",
        name="deleteJob",
        summary="Delete an ended job that no live job depends on",
        handler=delete,
        permission=Permission.OPERATE,
        response=DeletionResult,
        errors=(NOT_FOUND,),
        audited=True,
    ),
)
