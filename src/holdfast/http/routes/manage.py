"""Routes that change jobs: cancel, retry, release, delete."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from holdfast.errors import NotFoundError
from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import Field, duration, flag, text, text_list, whole
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.http.routes.jobs import checked_filter
from holdfast.http.schemas import PRIORITIES, SEARCH
from holdfast.model.job import Priority
from holdfast.model.results import (
    BatchCancellationResult,
    CancellationResult,
    DeletionResult,
    ReleaseResult,
    RetryResult,
)
from holdfast.model.times import shown
from holdfast.operations.filters import JobFilter, job_search

NOT_FOUND = "NOT_FOUND"


async def cancel(call: Call) -> JsonResponse:
    """Cancel one job."""
    result = await call.operations.cancel(
        call.job_id,
        reason=str(call.fields.get("reason", "")),
        force=bool(call.fields.get("force", False)),
    )
    return _found(call, result)


async def cancel_batch(call: Call) -> JsonResponse:
    """Cancel many jobs."""
    fields = call.fields
    filters = fields.get("filter")
    if filters is not None:
        job_search(checked_filter(cast("dict[str, object]", filters)))
    result = await call.operations.cancel_batch(
        job_ids=cast("list[str] | None", fields.get("job_ids")),
        filter=cast("JobFilter | None", filters),
        reason=str(fields.get("reason", "")),
        force=bool(fields.get("force", False)),
        dry_run=bool(fields.get("dry_run", False)),
    )
    return JsonResponse(result)


async def retry(call: Call) -> JsonResponse:
    """Run a FAILED or DEAD_LETTER job again."""
    result = await call.operations.retry(
        call.job_id,
        reset_attempts=bool(call.fields.get("reset_attempts", False)),
        priority=cast("str | int | None", call.fields.get("priority")),
        delay=cast("timedelta", call.fields.get("delay", timedelta(0))),
    )
    return _found(call, result)


async def release(call: Call) -> JsonResponse:
    """Release a job that was submitted with hold."""
    return _found(call, await call.operations.release(call.job_id))


async def delete(call: Call) -> JsonResponse:
    """Delete an ended job."""
    return _found(call, await call.operations.delete(call.job_id))


def _found(
    call: Call, result: CancellationResult | RetryResult | ReleaseResult | DeletionResult
) -> JsonResponse:
    if result.status.value == NOT_FOUND:
        raise NotFoundError(call.job_id)
    return JsonResponse(result)


def _read_filter(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, got {shown(value)}")
    return value


def _read_priority(value: object) -> object:
    value = whole(value)
    if isinstance(value, bool) or value not in [*PRIORITIES, *map(int, Priority)]:
        raise ValueError(f"must be one of {', '.join(PRIORITIES)}, got {shown(value)}")
    return value


_REASON = text("reason", description="Recorded in the history.")
_FORCE = flag("force", description="Interrupt a running job instead of asking it to stop.")
_FILTER = {name: value for name, value in SEARCH.items() if name != "examples"}

ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/jobs/cancel",
        name="cancelJobs",
        summary="Cancel many jobs, by id or by filter",
        description="Give either job_ids or filter. A dry run only counts the jobs.",
        handler=cancel_batch,
        permission=Permission.OPERATE,
        body_fields=(
            text_list("job_ids", maximum=1000),
            Field(name="filter", schema=_FILTER, read=_read_filter),
            _REASON,
            _FORCE,
            flag("dry_run"),
        ),
        example={"filter": {"types": ["email.send"]}, "reason": "wrong address", "dry_run": True},
        response=BatchCancellationResult,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/{job_id}/cancel",
        name="cancelJob",
        summary="Cancel a job",
        description="A waiting job is cancelled at once. A running job is asked to stop at its next"
        " checkpoint; with force it is interrupted.",
        handler=cancel,
        permission=Permission.CHANGE,
        body_fields=(_REASON, _FORCE),
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
        body_fields=(
            flag("reset_attempts", description="Start counting attempts from one."),
            Field(
                name="priority",
                schema={
                    "anyOf": [
                        {"type": "string", "enum": PRIORITIES},
                        {"type": "integer", "minimum": 0, "maximum": 4},
                    ]
                },
                read=_read_priority,
            ),
            duration("delay"),
        ),
        example={"reset_attempts": True, "delay": "PT1M"},
        response=RetryResult,
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
