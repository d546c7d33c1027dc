"""Routes about failures, statistics, queues, workers and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import cast

from holdfast.api.responses import AuditPage, QueueAgeing, QueueList, QueueState, WorkerList
from holdfast.errors import Fault, ValidationError
from holdfast.http.audit import Audit
from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import (
    DURATION,
    TIMESTAMP,
    Field,
    duration,
    instant,
    integer,
    text,
    text_list,
)
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.model.job import FailureCategory
from holdfast.model.policy import DAY, HOUR
from holdfast.model.results import FailureSearchResult
from holdfast.model.statistics import Breakdown, QueueStats
from holdfast.model.times import shown
from holdfast.operations.filters import FailureFilter
from holdfast.operations.pauses import LONGEST_REASON

STATS_KEPT = 7 * DAY
LONGEST_NAME = 128
"""Characters of the name of a queue or type."""


async def failures(call: Call) -> JsonResponse:
    """Return a page of failed jobs."""
    page = await call.operations.failures(cast("FailureFilter", call.query))
    return JsonResponse(page)


async def search_failures(call: Call) -> JsonResponse:
    """Return a page of failed jobs that match a body."""
    return JsonResponse(await call.operations.failures(cast("FailureFilter", call.fields)))


async def stats(call: Call) -> JsonResponse:
    """Return counts, rates and latencies."""
    found = await call.operations.stats(
        time_range=cast("timedelta", call.query.get("time_range", HOUR)),
        breakdown_by=cast("Sequence[str]", call.query.get("breakdown_by", ())),
    )
    return JsonResponse(found)


async def queues(call: Call) -> JsonResponse:
    """Return every queue."""
    return JsonResponse(QueueList(tuple(await call.operations.queues())))


async def pause(call: Call) -> JsonResponse:
    """Pause a queue."""
    name = queue_of(call)
    until = cast("datetime | None", call.fields.get("until"))
    reason = str(call.fields.get("reason", ""))
    await call.operations.pause(name, reason=reason, until=until, by=call.caller.name)
    found = [queue.pause for queue in await call.operations.queues() if queue.name == name]
    return JsonResponse(QueueState(name, paused=True, pause=found[0] if found else None))


async def resume(call: Call) -> JsonResponse:
    """Resume a paused queue."""
    name = queue_of(call)
    await call.operations.resume(name)
    return JsonResponse(QueueState(name, paused=False))


async def set_ageing(call: Call) -> JsonResponse:
    """Set or end the ageing of a queue."""
    name = queue_of(call)
    interval = cast("timedelta | None", call.fields.get("interval"))
    await call.operations.set_ageing(name, interval)
    return JsonResponse(QueueAgeing(name, interval))


async def workers(call: Call) -> JsonResponse:
    """Return the workers that are present."""
    found = tuple(await call.operations.workers())
    names = sum(len(each.queues) + len(each.types) for each in found)
    return JsonResponse(WorkerList(found), size=LONGEST_NAME * names)


async def audit(call: Call) -> JsonResponse:
    """Return the audit log, newest first."""
    log = Audit(call.operations.store)
    limit = cast("int", call.query.get("limit", 100))
    entries, cursor = await log.page(str(call.query.get("cursor", "")), limit)
    return JsonResponse(AuditPage(entries=tuple(entries), next_cursor=cursor))


def _read_interval(value: object) -> object:
    return None if value is None else duration("interval").read(value)


_INTERVAL = Field(
    name="interval", schema={"anyOf": [DURATION, {"type": "null"}]}, read=_read_interval
)


def queue_of(call: Call) -> str:
    """Return the queue in the path; ValidationError when the store cannot have it."""
    name = call.path["queue"]
    rule = call.operations.store.capabilities.queue_rule
    if not rule.fullmatch(name):
        message = f"must match {rule.pattern}, got {shown(name)}"
        raise ValidationError([Fault("queue", "INVALID", message)])
    return name


_TEXTS = {"type": "array", "items": {"type": "string", "pattern": r"^[^\u0000]*$"}}
_FAILED = {"type": "string", "enum": ["FAILED", "DEAD_LETTER", "RETRYING"]}
_CATEGORY = {"type": "string", "enum": [category.value for category in FailureCategory]}
_CURSOR = Field(
    name="cursor", schema={"type": "string"}, description="next_cursor of the page before."
)
_LIMIT = Field(
    name="limit", schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
)
_CAUSES = (
    Field(name="states", schema={"type": "array", "items": _FAILED}, many=True),
    Field(name="failure_category", schema={"type": "array", "items": _CATEGORY}, many=True),
    Field(name="types", schema=_TEXTS, many=True),
    Field(name="queues", schema=_TEXTS, many=True),
    Field(name="error_code", schema={"type": "string", "pattern": r"^[^\u0000]*$"}),
    Field(name="after", schema=TIMESTAMP, description="Failed at this time or later."),
    Field(name="before", schema=TIMESTAMP, description="Failed before this time."),
    _CURSOR,
    _LIMIT,
)
_RANGE = {
    "anyOf": [
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {"after": TIMESTAMP, "before": TIMESTAMP},
        },
        DURATION,
    ]
}
_PAGINATION = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"cursor": _CURSOR.schema, "limit": _LIMIT.schema},
}

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/failures",
        name="listFailures",
        summary="List failed jobs, with the number of failures by cause",
        handler=failures,
        permission=Permission.WATCH,
        query=(
            *_CAUSES,
            duration("time_range", description="Failed within this time up to now."),
        ),
        response=FailureSearchResult,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/failures",
        name="searchFailures",
        summary="List failed jobs, with filters in the body",
        handler=search_failures,
        permission=Permission.WATCH,
        body_fields=(
            *_CAUSES,
            Field(
                name="time_range",
                schema=_RANGE,
                description="When they failed: after and before, or a duration up to now.",
            ),
            Field(name="pagination", schema=_PAGINATION, description="cursor and limit."),
        ),
        example={
            "failure_category": ["TIMEOUT"],
            "time_range": {"after": "2026-11-16T00:00:00Z"},
            "pagination": {"limit": 50},
        },
        response=FailureSearchResult,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/stats",
        name="getStats",
        summary="Get counts, rates and latencies",
        handler=stats,
        permission=Permission.WATCH,
        query=(
            duration(
                "time_range",
                maximum=STATS_KEPT.total_seconds(),
                description="The window up to now: at most a week, an hour by default.",
            ),
            text_list("breakdown_by", choices=[by.value for by in Breakdown], maximum=10),
        ),
        response=QueueStats,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/queues",
        name="listQueues",
        summary="List queues with the number of jobs by state",
        handler=queues,
        permission=Permission.WATCH,
        response=QueueList,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/queues/{queue}/pause",
        name="pauseQueue",
        summary="Pause a queue",
        description="With until, it resumes by itself at that time while a worker runs.",
        handler=pause,
        permission=Permission.OPERATE,
        body_fields=(
            text("reason", maximum=LONGEST_REASON, description="Shown with the queue."),
            instant("until", description="When it resumes by itself."),
        ),
        example={"reason": "the mail server is down", "until": "2099-01-01T00:00:00Z"},
        response=QueueState,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/queues/{queue}/resume",
        name="resumeQueue",
        summary="Resume a queue",
        handler=resume,
        permission=Permission.OPERATE,
        body_fields=(),
        response=QueueState,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/queues/{queue}/ageing",
        name="setQueueAgeing",
        summary="Raise waiting jobs of a queue by one priority level per interval",
        description="Without an interval, or with null, a queue serves by strict priority.",
        handler=set_ageing,
        permission=Permission.OPERATE,
        body_fields=(_INTERVAL,),
        example={"interval": "PT10M"},
        response=QueueAgeing,
        audited=True,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/workers",
        name="listWorkers",
        summary="List the workers that are present",
        handler=workers,
        permission=Permission.WATCH,
        response=WorkerList,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/audit",
        name="listAudit",
        summary="List the calls that changed something, newest first",
        description="Entries are kept for 90 days.",
        handler=audit,
        permission=Permission.ADMINISTER,
        query=(
            text("cursor", maximum=512, description="next_cursor of the page before."),
            integer("limit", 1, 1000, default=100),
        ),
        response=AuditPage,
    ),
)
