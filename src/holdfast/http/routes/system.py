"""Routes about the whole: failures, statistics, queues, workers, the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

from holdfast.api.failures import FailureSearchBody
from holdfast.api.responses import AuditPage, QueueList, QueueState, WorkerList
from holdfast.errors import Fault, ValidationError
from holdfast.http.audit import Audit
from holdfast.http.endpoint import Answer, Call, Endpoint
from holdfast.http.fields import TIMESTAMP, Field, duration, integer, text, words
from holdfast.http.permissions import Permission
from holdfast.model.job import FailureCategory
from holdfast.model.policy import DAY, HOUR
from holdfast.model.statistics import Breakdown, QueueStats
from holdfast.model.times import shown
from holdfast.model.validation import QUEUE_RULE
from holdfast.operations.filters import FailureFilter

MEASURED = 7 * DAY
"""How long measures are kept."""


async def failures(call: Call) -> Answer:
    """Return a page of failed jobs."""
    page = await call.operations.failures(cast("FailureFilter", call.query))
    return Answer(FailureSearchBody.of(page))


async def stats(call: Call) -> Answer:
    """Return counts, rates and latencies."""
    found = await call.operations.stats(
        time_range=cast("timedelta", call.query.get("time_range", HOUR)),
        breakdown_by=cast("Sequence[str]", call.query.get("breakdown_by", ())),
    )
    return Answer(found)


async def queues(call: Call) -> Answer:
    """Return every queue."""
    return Answer(QueueList(tuple(await call.operations.queues())))


async def pause(call: Call) -> Answer:
    """Let no more jobs of a queue start."""
    name = _queue(call)
    await call.operations.pause(name)
    return Answer(QueueState(name, paused=True))


async def resume(call: Call) -> Answer:
    """Let jobs of a queue start again."""
    name = _queue(call)
    await call.operations.resume(name)
    return Answer(QueueState(name, paused=False))


async def workers(call: Call) -> Answer:
    """Return the workers that are there."""
    return Answer(WorkerList(tuple(await call.operations.workers())))


async def audit(call: Call) -> Answer:
    """Return who changed what, newest first."""
    log = Audit(call.operations.store)
    limit = cast("int", call.query.get("limit", 100))
    entries, cursor = await log.page(str(call.query.get("cursor", "")), limit)
    return Answer(AuditPage(entries=tuple(entries), next_cursor=cursor))


def _queue(call: Call) -> str:
    name = call.path["queue"]
    if not QUEUE_RULE.fullmatch(name):
        told = f"must match {QUEUE_RULE.pattern}, got {shown(name)}"
        raise ValidationError([Fault("queue", "INVALID", told)])
    return name


_TEXTS = {"type": "array", "items": {"type": "string", "pattern": r"^[^\u0000]*$"}}
_FAILED = {"type": "string", "enum": ["FAILED", "DEAD_LETTER", "RETRYING"]}
_CATEGORY = {"type": "string", "enum": [category.value for category in FailureCategory]}

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/failures",
        name="listFailures",
        summary="List failed jobs and what they failed of",
        handler=failures,
        permission=Permission.WATCH,
        query=(
            Field(name="states", schema={"type": "array", "items": _FAILED}, many=True),
            Field(name="failure_category", schema={"type": "array", "items": _CATEGORY}, many=True),
            Field(name="types", schema=_TEXTS, many=True),
            Field(name="queues", schema=_TEXTS, many=True),
            Field(name="error_code", schema={"type": "string", "pattern": r"^[^\u0000]*$"}),
            Field(name="after", schema=TIMESTAMP, help="Failed then or later."),
            Field(name="before", schema=TIMESTAMP, help="Failed before."),
            Field(name="cursor", schema={"type": "string"}, help="From the page before."),
            Field(
                name="limit",
                schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
            ),
        ),
        answer=FailureSearchBody,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/stats",
        name="getStats",
        summary="Show counts, rates and latencies",
        handler=stats,
        permission=Permission.WATCH,
        query=(
            duration(
                "time_range",
                most=MEASURED.total_seconds(),
                help="Look back so long, at most a week; an hour if silent.",
            ),
            words("breakdown_by", choices=[by.value for by in Breakdown], most=10),
        ),
        answer=QueueStats,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/queues",
        name="listQueues",
        summary="List queues with their counts",
        handler=queues,
        permission=Permission.WATCH,
        answer=QueueList,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/queues/{queue}/pause",
        name="pauseQueue",
        summary="Let no more jobs of a queue start",
        handler=pause,
        permission=Permission.OPERATE,
        form=(),
        answer=QueueState,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/queues/{queue}/resume",
        name="resumeQueue",
        summary="Let jobs of a queue start again",
        handler=resume,
        permission=Permission.OPERATE,
        form=(),
        answer=QueueState,
        audited=True,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/workers",
        name="listWorkers",
        summary="List the workers that are there",
        handler=workers,
        permission=Permission.WATCH,
        answer=WorkerList,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/audit",
        name="listAudit",
        summary="List who changed what, newest first",
        help="Kept for 90 days.",
        handler=audit,
        permission=Permission.ADMINISTER,
        query=(
            text("cursor", most=512, help="From the page before."),
            integer("limit", 1, 1000, default=100),
        ),
        answer=AuditPage,
    ),
)
