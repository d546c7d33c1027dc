"""Routes that change jobs: cancel, retry, release, delete."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from holdfast.errors import NotFoundError
from holdfast.http.endpoint import Answer, Call, Endpoint
from holdfast.http.fields import Field, duration, flag, text, whole, words
from holdfast.http.permissions import Permission
from holdfast.http.routes.jobs import plain_filter
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


async def cancel(call: Call) -> Answer:
    """Cancel one job."""
    result = await call.operations.cancel(
        call.job_id,
        reason=str(call.form.get("reason", "")),
        force=bool(call.form.get("force", False)),
    )
    return _known(call, result)


async def cancel_batch(call: Call) -> Answer:
    """Cancel many jobs."""
    form = call.form
    wanted = form.get("filter")
    ids = form.get("job_ids")
    if wanted is not None:
        job_search(plain_filter(cast("dict[str, object]", wanted)))
    result = await call.operations.cancel_batch(
        job_ids=cast("list[str] | None", ids),
        filter=cast("JobFilter | None", wanted),
        reason=str(form.get("reason", "")),
        force=bool(form.get("force", False)),
        dry_run=bool(form.get("dry_run", False)),
    )
    return Answer(result)


async def retry(call: Call) -> Answer:
    """Give a failed job another chance."""
    result = await call.operations.retry(
        call.job_id,
        reset_attempts=bool(call.form.get("reset_attempts", False)),
        priority=cast("str | int | None", call.form.get("priority")),
        delay=cast("timedelta", call.form.get("delay", timedelta(0))),
    )
    return _known(call, result)


async def release(call: Call) -> Answer:
    """Let a held job go."""
    return _known(call, await call.operations.release(call.job_id))


async def delete(call: Call) -> Answer:
    """Delete an ended job."""
    return _known(call, await call.operations.delete(call.job_id))


def _known(
    call: Call, result: CancellationResult | RetryResult | ReleaseResult | DeletionResult
) -> Answer:
    if result.status.value == NOT_FOUND:
        raise NotFoundError(call.job_id)
    return Answer(result)


def _a_filter(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, got {shown(value)}")
    return value


def _a_priority(value: object) -> object:
    value = whole(value)
    if isinstance(value, bool) or value not in [*PRIORITIES, *map(int, Priority)]:
        raise ValueError(f"must be one of {', '.join(PRIORITIES)}, got {shown(value)}")
    return value


_REASON = text("reason", help="Why; kept in the history.")
_FORCE = flag("force", help="Interrupt a running job instead of asking it to stop.")
_FILTER = {name: value for name, value in SEARCH.items() if name != "examples"}

ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/jobs/cancel",
        name="cancelJobs",
        summary="Cancel many jobs, by id or by filter",
        help="Give job_ids or filter, not both. A dry run only counts.",
        handler=cancel_batch,
        permission=Permission.OPERATE,
        form=(
            words("job_ids", most=1000),
            Field(name="filter", schema=_FILTER, read=_a_filter),
            _REASON,
            _FORCE,
            flag("dry_run"),
        ),
        example={"filter": {"types": ["email.send"]}, "reason": "wrong address", "dry_run": True},
        answer=BatchCancellationResult,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/{job_id}/cancel",
        name="cancelJob",
        summary="Cancel a job",
        help="A waiting job is cancelled at once. A running one is asked to stop at its next"
        " checkpoint, with force it is interrupted.",
        handler=cancel,
        permission=Permission.CHANGE,
        form=(_REASON, _FORCE),
        example={"reason": "no longer wanted", "force": False},
        answer=CancellationResult,
        errors=(NOT_FOUND,),
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/{job_id}/retry",
        name="retryJob",
        summary="Give a failed job another chance",
        handler=retry,
        permission=Permission.OPERATE,
        form=(
            flag("reset_attempts", help="Count attempts from the start."),
            Field(
                name="priority",
                schema={
                    "anyOf": [
                        {"type": "string", "enum": PRIORITIES},
                        {"type": "integer", "minimum": 0, "maximum": 4},
                    ]
                },
                read=_a_priority,
            ),
            duration("delay"),
        ),
        example={"reset_attempts": True, "delay": "PT1M"},
        answer=RetryResult,
        errors=(NOT_FOUND,),
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/{job_id}/release",
        name="releaseJob",
        summary="Let a job go that was submitted with hold",
        handler=release,
        permission=Permission.CHANGE,
        form=(),
        answer=ReleaseResult,
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
        answer=DeletionResult,
        errors=(NOT_FOUND,),
        audited=True,
    ),
)
