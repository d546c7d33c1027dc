"""Routes that change many jobs: cancel, retry and delete, by ids or by filter."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypedDict, cast

from holdfast.http.endpoint import LONG_LISTS, Call, Endpoint
from holdfast.http.fields import Field, flag, instant, text_list
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.http.routes.jobs import checked_filter
from holdfast.http.routes.manage import FORCE, REASON, RETRY_FIELDS
from holdfast.http.schemas import SEARCH
from holdfast.model.results import BatchCancellationResult, BatchDeletionResult, BatchRetryResult
from holdfast.model.times import shown
from holdfast.operations.batches import OF_PAGES, check_batch_filter
from holdfast.operations.filters import JobFilter, job_search

ABOUT = (
    "Give either job_ids or filter. A filter selects every job that matches. Jobs that changed"
    " after as_of are skipped. A dry run only counts the jobs."
)


class _Selected(TypedDict):
    job_ids: list[str] | None
    filter: JobFilter | None
    as_of: datetime | None
    dry_run: bool


async def cancel_batch(call: Call) -> JsonResponse:
    """Cancel many jobs."""
    result = await call.operations.cancel_batch(
        **_selected(call),
        reason=str(call.fields.get("reason", "")),
        force=bool(call.fields.get("force", False)),
    )
    return JsonResponse(result)


async def retry_batch(call: Call) -> JsonResponse:
    """Run many FAILED and DEAD_LETTER jobs again."""
    result = await call.operations.retry_batch(
        **_selected(call),
        reset_attempts=bool(call.fields.get("reset_attempts", False)),
        priority=cast("str | int | None", call.fields.get("priority")),
        delay=cast("timedelta", call.fields.get("delay", timedelta(0))),
    )
    return JsonResponse(result)


async def delete_batch(call: Call) -> JsonResponse:
    """Delete many ended jobs."""
    return JsonResponse(await call.operations.delete_batch(**_selected(call)))


def _selected(call: Call) -> _Selected:
    fields = call.fields
    filters = cast("dict[str, object] | None", fields.get("filter"))
    if filters is not None:
        wanted = checked_filter(filters)
        check_batch_filter(wanted)
        job_search(wanted)
    return {
        "job_ids": cast("list[str] | None", fields.get("job_ids")),
        "filter": cast("JobFilter | None", filters),
        "as_of": cast("datetime | None", fields.get("as_of")),
        "dry_run": bool(fields.get("dry_run", False)),
    }


def _read_filter(value: object) -> object:
    """Return an object; the search checks its fields."""
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, got {shown(value)}")
    return value


def _filter_schema() -> dict[str, object]:
    properties = cast("dict[str, object]", SEARCH["properties"])
    schema = {name: value for name, value in SEARCH.items() if name != "examples"}
    return {**schema, "properties": {n: p for n, p in properties.items() if n not in OF_PAGES}}


FILTER = Field(name="filter", schema=_filter_schema(), read=_read_filter)
_SELECTION = (
    text_list("job_ids", maximum=1000),
    FILTER,
    instant("as_of", description="Skip jobs that changed after this time."),
    flag("dry_run", description="Only count the jobs."),
)

ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/jobs/cancel",
        name="cancelJobs",
        body_bytes=LONG_LISTS,
        summary="Cancel many jobs, by id or by filter",
        description=ABOUT,
        handler=cancel_batch,
        permission=Permission.OPERATE,
        body_fields=(*_SELECTION, REASON, FORCE),
        example={"filter": {"types": ["email.send"]}, "reason": "wrong address", "dry_run": True},
        response=BatchCancellationResult,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/retry",
        name="retryJobs",
        body_bytes=LONG_LISTS,
        summary="Run many FAILED and DEAD_LETTER jobs again, by id or by filter",
        description=f"{ABOUT} A retried job waits for its retried dependencies.",
        handler=retry_batch,
        permission=Permission.OPERATE,
        body_fields=(*_SELECTION, *RETRY_FIELDS),
        example={"filter": {"states": ["DEAD_LETTER"]}, "dry_run": True},
        response=BatchRetryResult,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/delete",
        name="deleteJobs",
        body_bytes=LONG_LISTS,
        summary="Delete many ended jobs that no live job depends on, by id or by filter",
        description=ABOUT,
        handler=delete_batch,
        permission=Permission.OPERATE,
        body_fields=_SELECTION,
        example={"filter": {"states": ["CANCELLED"]}, "dry_run": True},
        response=BatchDeletionResult,
        audited=True,
    ),
)
