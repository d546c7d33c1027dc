"""Routes about operations on many jobs: start, preview, list, get, cancel."""

from __future__ import annotations

from typing import cast

from holdfast.api.responses import OperationList
from holdfast.http.endpoint import LONG_LISTS, Call, Endpoint
from holdfast.http.fields import Field, flag, instant, integer, text, text_list
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.http.routes.batches import FILTER
from holdfast.http.routes.jobs import checked_filter
from holdfast.http.routes.manage import FORCE, REASON, RETRY_FIELDS
from holdfast.model.bulk import BulkAction, BulkOperation, BulkPreview
from holdfast.operations.bulk import MOST_IDS, MOST_PAGE


async def start(call: Call) -> JsonResponse:
    """Start an operation."""
    fields = _fields(call)
    action = str(fields.pop("action"))
    made = await call.operations.bulk.start(action, by=call.caller.name, **fields)  # type: ignore[arg-type]  # read by type
    call.service.bulk.wake()
    return JsonResponse(made, status=202)


async def preview(call: Call) -> JsonResponse:
    """Return how many jobs an operation would look at."""
    fields = _fields(call)
    action = str(fields.pop("action"))
    return JsonResponse(await call.operations.bulk.preview(action, **fields))  # type: ignore[arg-type]  # read by type


async def list_operations(call: Call) -> JsonResponse:
    """Return operations, the newest first."""
    found = await call.operations.bulk.list(
        after=str(call.query.get("after", "")), limit=cast("int", call.query.get("limit", 50))
    )
    return JsonResponse(OperationList(tuple(found)))


async def get_operation(call: Call) -> JsonResponse:
    """Return one operation."""
    return JsonResponse(await call.operations.bulk.get(call.path["operation_id"]))


async def cancel_operation(call: Call) -> JsonResponse:
    """Stop an operation."""
    return JsonResponse(await call.operations.bulk.cancel(call.path["operation_id"]))


def _fields(call: Call) -> dict[str, object]:
    fields = dict(call.fields)
    if "filter" in fields:
        fields["filter"] = checked_filter(cast("dict[str, object]", fields["filter"]))
    return fields


_PATH = "/api/v1/operations"
_ONE = f"{_PATH}/{{operation_id}}"
_SELECTION = (
    Field(
        name="action",
        schema={"type": "string", "enum": [action.value for action in BulkAction]},
        required=True,
    ),
    FILTER,
    text_list("ids", minimum=1, maximum=MOST_IDS, description="Ids of jobs, in place of a filter."),
    instant("as_of", description="Jobs that match or change later are not touched; now."),
)

ENDPOINTS = (
    Endpoint(
        method="POST",
        path=_PATH,
        name="startOperation",
        body_bytes=LONG_LISTS,
        summary="Cancel, retry, delete, reprioritise or release many jobs in the background",
        description="Give either filter or ids. Of the jobs that match, those that the action can"
        " change are selected. Jobs that match or change after as_of are not touched. It runs in"
        " pages of 500 jobs, in a worker or in the service, and survives their restart. A dry run"
        " counts what would change. At most 20 may be open at once.",
        handler=start,
        permission=Permission.OPERATE,
        body_fields=(
            *_SELECTION,
            flag("dry_run", "Only count the jobs."),
            REASON,
            FORCE,
            *RETRY_FIELDS,
        ),
        example={
            "action": "retry",
            "filter": {"types": ["email.send"], "states": ["FAILED"]},
            "as_of": "2026-11-18T12:30:05Z",
        },
        response=BulkOperation,
        status=202,
        errors=("QUOTA_EXCEEDED",),
        audited=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/preview",
        name="previewOperation",
        body_bytes=LONG_LISTS,
        summary="Count the jobs that an operation would look at",
        description="Answers at once. matched is a lower bound unless matched_exact. Start the"
        " operation with the as_of of the preview.",
        handler=preview,
        permission=Permission.WATCH,
        body_fields=_SELECTION,
        example={"action": "retry", "filter": {"types": ["email.send"]}},
        response=BulkPreview,
    ),
    Endpoint(
        method="GET",
        path=_PATH,
        name="listOperations",
        summary="List operations on many jobs, the newest first",
        handler=list_operations,
        permission=Permission.WATCH,
        query=(
            text("after", maximum=64, description="Continue behind the operation of this id."),
            integer("limit", 1, MOST_PAGE, default=50),
        ),
        response=OperationList,
    ),
    Endpoint(
        method="GET",
        path=_ONE,
        name="getOperation",
        summary="Get an operation with its progress",
        handler=get_operation,
        permission=Permission.WATCH,
        response=BulkOperation,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="POST",
        path=f"{_ONE}/cancel",
        name="cancelOperation",
        summary="Stop an operation; what it has changed stays",
        handler=cancel_operation,
        permission=Permission.OPERATE,
        body_fields=(),
        response=BulkOperation,
        errors=("NOT_FOUND",),
        audited=True,
    ),
)
