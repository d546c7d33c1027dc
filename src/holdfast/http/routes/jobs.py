"""Routes that show jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from holdfast.api.failures import FailureBody
from holdfast.api.jobs import JobBody, ResultBody
from holdfast.api.responses import JobSearchResult, LogLines
from holdfast.errors import Fault, ValidationError
from holdfast.http.endpoint import Answer, Call, Endpoint
from holdfast.http.fields import TIMESTAMP, Field, decoded, duration, flag, whole
from holdfast.http.permissions import Permission
from holdfast.http.schemas import PRIORITIES, SEARCH
from holdfast.model.job import State
from holdfast.model.reserved import RESERVED
from holdfast.operations.explain import Explanation
from holdfast.operations.filters import JobFilter
from holdfast.store import Order

LONGEST_WAIT = 60.0
WAIT = timedelta(seconds=30)

_TEXTS = {"type": "array", "items": {"type": "string", "pattern": r"^[^\u0000]*$"}}
_CURSOR = Field(name="cursor", schema={"type": "string"}, help="From the page before.")
_LIMIT = Field(
    name="limit", schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
)

FILTERS = (
    Field(name="types", schema=_TEXTS, many=True),
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
            "additionalProperties": {"type": "string", "pattern": r"^[^\u0000]*$"},
        },
        deep=True,
        help="As tags[name]=value; all must match exactly.",
    ),
    Field(name="correlation_id", schema={"type": "string", "pattern": r"^[^\u0000]*$"}),
    Field(name="created_after", schema=TIMESTAMP, help="Submitted then or later."),
    Field(name="created_before", schema=TIMESTAMP, help="Submitted before."),
    Field(name="updated_after", schema=TIMESTAMP, help="Moved then or later."),
    Field(name="order", schema={"type": "string", "enum": [order.value for order in Order]}),
    _CURSOR,
    _LIMIT,
)


async def get(call: Call) -> Answer:
    """Return one job."""
    job = await call.operations.get(
        call.job_id,
        include_result=bool(call.query.get("include_result", True)),
        include_history=bool(call.query.get("include_history", False)),
    )
    return Answer(JobBody.of(job, traces=call.caller.traces))


async def result(call: Call) -> Answer:
    """Return how a job ended; null while it has not."""
    job = JobBody.of(await call.operations.get(call.job_id), traces=call.caller.traces)
    return Answer(job.result)


async def wait(call: Call) -> Answer:
    """Answer when a job has ended, or when that takes too long."""
    patience = call.query.get("timeout", WAIT)
    assert isinstance(patience, timedelta)
    try:
        waited = await call.patiently(call.operations.wait(call.job_id, timeout=patience))
    except TimeoutError:
        waited = None
    job = waited or await call.operations.get(call.job_id)
    return Answer(JobBody.of(job, traces=call.caller.traces))


async def listing(call: Call) -> Answer:
    """Return a page of jobs that match a query."""
    return await _page(call, call.query)


async def search(call: Call) -> Answer:
    """Return a page of jobs that match a body."""
    wanted = decoded(call.body) if call.body.strip() else {}
    if not isinstance(wanted, dict):
        raise ValidationError([Fault("body", "INVALID", "must be a JSON object")])
    if "limit" in wanted:
        wanted["limit"] = whole(wanted["limit"])
    return await _page(call, wanted)


async def _page(call: Call, wanted: dict[str, object]) -> Answer:
    page = await call.operations.search(plain_filter(wanted))
    return Answer(JobSearchResult.of(page, traces=call.caller.traces))


def plain_filter(wanted: dict[str, object]) -> JobFilter:
    """Return a filter that does not ask for the system's own tags; the search checks the rest."""
    tags = wanted.get("tags")
    if isinstance(tags, dict) and any(str(name).startswith(RESERVED) for name in tags):
        raise ValidationError([Fault("tags", "RESERVED", f"must not begin with {RESERVED!r}")])
    return cast("JobFilter", wanted)


async def failure(call: Call) -> Answer:
    """Return how a job failed."""
    details = await call.operations.failure(
        call.job_id, include_all_attempts=bool(call.query.get("include_all_attempts", True))
    )
    return Answer(FailureBody.of(details, traces=call.caller.traces))


async def explain(call: Call) -> Answer:
    """Say why a job is not running now."""
    return Answer(await call.operations.explain(call.job_id))


async def logs(call: Call) -> Answer:
    """Return what a job's handler logged."""
    return Answer(LogLines(tuple(await call.operations.logs(call.job_id))))


_JOB = "/api/v1/jobs/{job_id}"

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/jobs",
        name="listJobs",
        summary="List jobs",
        handler=listing,
        permission=Permission.READ,
        query=FILTERS,
        answer=JobSearchResult,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/search",
        name="searchJobs",
        summary="List jobs, with the filters in a body",
        handler=search,
        permission=Permission.READ,
        body=SEARCH,
        may_be_silent=True,
        example={"states": ["FAILED", "DEAD_LETTER"], "tags": {"tenant": "acme"}, "limit": 50},
        answer=JobSearchResult,
    ),
    Endpoint(
        method="GET",
        path=_JOB,
        name="getJob",
        summary="Show a job",
        handler=get,
        permission=Permission.READ,
        query=(flag("include_result"), flag("include_history")),
        answer=JobBody,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/result",
        name="getResult",
        summary="Show how a job ended",
        help="null while the job has not ended.",
        handler=result,
        permission=Permission.READ,
        answer=ResultBody,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/wait",
        name="waitForJob",
        summary="Wait until a job has ended",
        help="Answers at once when it has ended, else when it ends, at the latest after the"
        " timeout: then the state tells that it has not.",
        handler=wait,
        permission=Permission.READ,
        query=(duration("timeout", most=LONGEST_WAIT, help="At most 60 s; 30 s if silent."),),
        answer=JobBody,
        errors=("NOT_FOUND",),
        patience=None,
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/failure",
        name="getFailure",
        summary="Show how a job failed, attempt by attempt",
        handler=failure,
        permission=Permission.READ,
        query=(flag("include_all_attempts"),),
        answer=FailureBody,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/explain",
        name="explainJob",
        summary="Say why a job is not running now",
        handler=explain,
        permission=Permission.READ,
        answer=Explanation,
        errors=("NOT_FOUND",),
    ),
    Endpoint(
        method="GET",
        path=f"{_JOB}/logs",
        name="getLogs",
        summary="Show what a job's handler logged",
        handler=logs,
        permission=Permission.READ,
        answer=LogLines,
        errors=("NOT_FOUND",),
    ),
)
