"""Routes that read jobs."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import cast

from holdfast.api.jobs import visible_failure, visible_job, visible_page
from holdfast.api.responses import LogLines
from holdfast.errors import Fault, ValidationError
from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import TIMESTAMP, Field, decode_json, duration, flag, whole
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.http.schemas import PRIORITIES, SEARCH
from holdfast.model.job import State
from holdfast.model.reserved import RESERVED
from holdfast.model.results import FailureDetails, JobCounts, JobSearchResult
from holdfast.model.status import JobPayload, JobResult, JobStatus
from holdfast.model.validation import MAX_TAGS
from holdfast.operations.explain import Explanation
from holdfast.operations.filters import JobFilter, job_search
from holdfast.runtime.off_loop import off_loop
from holdfast.store import Order

MAX_WAIT = 60.0
DEFAULT_WAIT = timedelta(seconds=30)

_TEXTS = {"type": "array", "items": {"type": "string", "pattern": r"^[^\u0000]*$"}}
_TEXT = {"type": "string", "pattern": r"^[^\u0000]*$"}
_CURSOR = Field(
    name="cursor", schema={"type": "string"}, description="next_cursor of the page before."
)
_LIMIT = Field(
    name="limit", schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
)

FILTERS = (
    Field(
        name="types",
        schema=_TEXTS,
        many=True,
        description="A type that ends with * stands for all that begin so.",
    ),
    Field(name="queues", schema=_TEXTS, many=True),
    Field(
        name="states",
        schema={"type": "array", "items": {"type": "string", "enum": [s.value for s in State]}},
        many=True,
    ),
    Field(
        name="priorities",
        schema={"type": "array", "items": {"type": "string", "enum": PRIORITIES}},
        many=True,
    ),
    Field(
        name="tags",
        schema={
            "type": "object",
            "maxProperties": MAX_TAGS,
            "additionalProperties": {"type": "string", "pattern": r"^[^\u0000]*$"},
        },
        deep=True,
        description="Written as tags[name]=value; all must match exactly.",
    ),
    Field(name="correlation_id", schema=_TEXT),
    Field(name="id_prefix", schema=_TEXT, description="The id begins with this."),
    Field(
        name="code",
        schema=_TEXT,
        description="Failed with this code; with * at its end, with codes that begin so. Without"
        " states, the jobs that are failed now.",
    ),
    Field(
        name="worker",
        schema=_TEXT,
        description="Of this worker; with * at its end, of workers that begin so. Without states,"
        " the jobs that run.",
    ),
    Field(name="created_after", schema=TIMESTAMP, description="Submitted at this time or later."),
    Field(name="created_before", schema=TIMESTAMP, description="Submitted before this time."),
    Field(
        name="updated_after",
        schema=TIMESTAMP,
        description="Changed its state at this time or later.",
    ),
    Field(
        name="group",
        schema={"type": "string", "maxLength": 64, "pattern": r"^[^\u0000]*$"},
        description="Failed as this failure group; without states, the jobs that are failed now.",
    ),
    Field(name="order", schema={"type": "string", "enum": [order.value for order in Order]}),
    _CURSOR,
    _LIMIT,
)


async def get(call: Call) -> JsonResponse:
    """Return one job."""
    job = await call.operations.get(
        call.job_id,
        include_result=bool(call.query.get("include_result", True)),
        include_history=bool(call.query.get("include_history", False)),
    )
    return JsonResponse(visible_job(job, traces=call.caller.traces))


async def result(call: Call) -> JsonResponse:
    """Return the result of a job; null until it has ended."""
    job = visible_job(await call.operations.get(call.job_id), traces=call.caller.traces)
    return JsonResponse(job.result)


async def payload(call: Call) -> JsonResponse:
    """Return the payload of a job."""
    return JsonResponse(await call.operations.payload(call.job_id))


async def wait(call: Call) -> JsonResponse:
    """Return a job when it has ended, or after the timeout."""
    timeout = call.query.get("timeout", DEFAULT_WAIT)
    assert isinstance(timeout, timedelta)
    try:
        waited = await call.while_connected(call.operations.wait(call.job_id, timeout=timeout))
    except TimeoutError:
        waited = None
    job = waited or await call.operations.get(call.job_id)
    return JsonResponse(visible_job(job, traces=call.caller.traces))


async def list_jobs(call: Call) -> JsonResponse:
    """Return a page of jobs that match a query."""
    return await _page(call, call.query)


async def search(call: Call) -> JsonResponse:
    """Return a page of jobs that match a body."""
    return await _page(call, await _body(call))


async def count(call: Call) -> JsonResponse:
    """Return how many jobs match a body, by state."""
    return JsonResponse(await call.operations.count(checked_filter(await _body(call))))


async def _body(call: Call) -> dict[str, object]:
    filters: object = {}
    if call.body.strip():
        filters = await off_loop(len(call.body), partial(decode_json, call.body))
    if not isinstance(filters, dict):
        raise ValidationError([Fault("body", "INVALID", "must be a JSON object")])
    if "limit" in filters:
        filters["limit"] = whole(filters["limit"])
    return filters


async def _page(call: Call, filters: dict[str, object]) -> JsonResponse:
    await off_loop(len(call.body), partial(job_search, checked_filter(filters)))
    page = await call.operations.search(checked_filter(filters))
    return JsonResponse(visible_page(page, traces=call.caller.traces))


def checked_filter(filters: dict[str, object]) -> JobFilter:
    """Return a filter without reserved tags; the search checks everything else."""
    tags = filters.get("tags")
    if isinstance(tags, dict) and len(tags) > MAX_TAGS:
        message = f"must have at most {MAX_TAGS} tags, got {len(tags)}"
        raise ValidationError([Fault("tags", "TOO_MANY", message)])
    if isinstance(tags, dict) and any(str(name).startswith(RESERVED) for name in tags):
        raise ValidationError([Fault("tags", "RESERVED", f"must not begin with {RESERVED!r}")])
    return cast("JobFilter", filters)


async def failure(call: Call) -> JsonResponse:
    """Return the failure of a job, attempt by attempt."""
    details = await call.operations.failure(
        call.job_id, include_all_attempts=bool(call.query.get("include_all_attempts", True))
    )
    return JsonResponse(visible_failure(details, traces=call.caller.traces))


async def explain(call: Call) -> JsonResponse:
    """Explain why a job is not running now."""
    return JsonResponse(await call.operations.explain(call.job_id))


async def logs(call: Call) -> JsonResponse:
    """Return the lines that a job's handler logged."""
    return JsonResponse(LogLines(tuple(await call.operations.logs(call.job_id))))


_JOB = "/api/v1/jobs/{job_id}"

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/jobs",
        name="listJobs",
        summary="List jobs",
        handler=list_jobs,
        permission=Permission.READ,
        query=FILTERS,
        response=JobSearchResult,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/search",
        name="searchJobs",
        summary="List jobs, with filters in the body",
        handler=search,
        permission=Permission.READ,
        body_schema=SEARCH,
        body_optional=True,
        example={"states": ["FAILED", "DEAD_LETTER"], "tags": {"tenant": "acme"}, "limit": 50},
        response=JobSearchResult,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/count",
        name="countJobs",
        summary="Count jobs by state, with filters in the body",
        description="Filters by type, queue, state and priority are counted exactly. With others,"
        " the newest 1,000 jobs are counted by state, and the total up to 10,000."
        " at_least names the states that may have more.",
        handler=count,
        permission=Permission.WATCH,
        body_schema=SEARCH,
        body_optional=True,
        example={"tags": {"tenant": "acme"}},
        response=JobCounts,
    ),
    Endpoint(
        method="GET",
        path=_JOB,
        name="getJob",
        summary="Get a job",
        handler=get,
        permission=Permission.READ,
        query=(flag("include_result"), flag("include_history")),
        response=JobStatus,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/result",
        name="getResult",
        summary="Get the result of a job",
        description="null until the job has ended.",
        handler=result,
        permission=Permission.READ,
        response=JobResult,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/payload",
        name="getPayload",
        summary="Get the payload of a job",
        description="For its submitter, operators and administrators.",
        handler=payload,
        permission=Permission.CHANGE,
        response=JobPayload,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/wait",
        name="waitForJob",
        summary="Wait until a job has ended",
        description="Responds when the job ends, or after the timeout with the job as it is then;"
        " its state shows whether it has ended.",
        handler=wait,
        permission=Permission.READ,
        query=(
            duration("timeout", maximum=MAX_WAIT, description="At most 60 s; 30 s by default."),
        ),
        response=JobStatus,
        errors=("NOT_FOUND",),
        timeout=None,
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/failure",
        name="getFailure",
        summary="Get the failure of a job, attempt by attempt",
        handler=failure,
        permission=Permission.READ,
        query=(flag("include_all_attempts"),),
        response=FailureDetails,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/explain",
        name="explainJob",
        summary="Explain why a job is not running now",
        handler=explain,
        permission=Permission.READ,
        response=Explanation,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/logs",
        name="getLogs",
        summary="Get the log lines of a job",
        handler=logs,
        permission=Permission.READ,
        response=LogLines,
        errors=("NOT_FOUND",),
    ),
)
