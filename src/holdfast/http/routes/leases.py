"""Routes for workers: claim jobs, keep their leases, keep what they tell meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import cast

import msgspec

from holdfast.http.endpoint import Answer, Call, Endpoint
from holdfast.http.fields import Field, blob, duration, integer, text, words
from holdfast.http.permissions import Permission
from holdfast.http.workers import (
    ClaimedJob,
    ClaimResult,
    LeaseState,
    LeaseStates,
    RemoteWorkers,
)
from holdfast.model.job import DEFAULT_QUEUE, LogLine, Progress
from holdfast.model.payload import clean
from holdfast.model.times import shown
from holdfast.model.validation import QUEUE_RULE
from holdfast.model.workers import WorkerInfo
from holdfast.store import Fence, JobNote
from holdfast.tasks.context import LEVELS, MAX_LOG_MESSAGE

LONGEST_POLL = 30.0
MAX_MESSAGE = 4096
MAX_TRACE = 16_384


def workplace(call: Call) -> RemoteWorkers:
    return RemoteWorkers(call.operations.store, call.service.app.randomness)


def fence_of(call: Call) -> Fence:
    return Fence(call.job_id, str(call.form["lease_token"]))


async def claim(call: Call) -> Answer:
    """Take jobs, waiting for some if asked to."""
    form = call.form
    store = call.operations.store
    limit = cast("int", form.get("limit", 1))
    worker = WorkerInfo(
        id=str(form["worker_id"]),
        host="",
        pid=0,
        queues=tuple(cast("list[str]", form.get("queues", [DEFAULT_QUEUE]))),
        types=tuple(cast("list[str]", form.get("types", ()))),
        slots=limit,
        running=0,
        started_at=store.now(),
    )

    async def pausing(news: Awaitable[int]) -> int | None:
        return await call.patiently(_awaited(news))

    wait = cast("timedelta", form.get("wait", timedelta(0)))
    jobs = await workplace(call).claim(worker, limit, wait, pausing)
    return Answer(ClaimResult(tuple(ClaimedJob.of(job) for job in jobs)))


async def _awaited(news: Awaitable[int]) -> int:
    return await news


async def heartbeats(call: Call) -> Answer:
    """Renew many leases."""
    fences = cast("list[Fence]", call.form["leases"])
    return Answer(LeaseStates(tuple(await workplace(call).renew(fences))))


async def heartbeat(call: Call) -> Answer:
    """Renew one lease."""
    (state,) = await workplace(call).renew([fence_of(call)])
    return Answer(state)


async def progress(call: Call) -> Answer:
    """Keep how far a job is."""
    told = Progress(
        cast("int", call.form["percent"]),
        str(call.form.get("message", "")),
        call.operations.store.now(),
    )
    return Answer(await workplace(call).note(JobNote(fence=fence_of(call), progress=told)))


async def checkpoint(call: Call) -> Answer:
    """Keep state for the next attempt."""
    data = cast("bytes", call.form["data"])
    return Answer(await workplace(call).note(JobNote(fence=fence_of(call), checkpoint=data)))


async def log(call: Call) -> Answer:
    """Keep a line with the job."""
    fields = cast("dict[str, str]", call.form.get("fields", {}))
    line = LogLine(
        call.operations.store.now(),
        str(call.form.get("level", "INFO")),
        str(call.form["message"]),
        cast("int", call.form.get("attempt", 0)),
        fields,
    )
    return Answer(await workplace(call).note(JobNote(fence=fence_of(call), log=line)))


def _leases(value: object) -> list[Fence]:
    if not isinstance(value, list) or not 1 <= len(value) <= 1000:
        raise ValueError(f"must be a list of 1 to 1000 leases, got {shown(value)}")
    try:
        found = msgspec.convert(value, list[_Lease])
    except msgspec.ValidationError as error:
        raise ValueError(f"must hold job_id and lease_token: {error}") from None
    if any(len(lease.job_id) > 256 or len(lease.lease_token) > 256 for lease in found):
        raise ValueError("must hold ids and tokens of at most 256 characters")
    return [Fence(clean(lease.job_id), clean(lease.lease_token)) for lease in found]


class _Lease(msgspec.Struct, forbid_unknown_fields=True):
    job_id: str
    lease_token: str


def texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > 64:
        raise ValueError(f"must be a map of at most 64 strings, got {shown(value)}")
    for one in value.values():
        if not isinstance(one, str):
            raise ValueError(f"must hold strings, got {shown(one)}")
    return {clean(str(name), 128): clean(one, 1024) for name, one in value.items()}


def one_of(name: str, words_: tuple[str, ...]) -> Field:
    def read(value: object) -> object:
        if value not in words_:
            raise ValueError(f"must be one of {', '.join(words_)}, got {shown(value)}")
        return value

    return Field(name=name, schema={"type": "string", "enum": list(words_)}, read=read)


MAP = {"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string"}}
TOKEN = text("lease_token", least=1, most=256, required=True, help="From the claim.")
JOB = "/api/v1/jobs/{job_id}"
LOST = ("STALE_LEASE",)
_NAME = {"type": "string", "maxLength": 256}
_LEASES = {
    "type": "array",
    "minItems": 1,
    "maxItems": 1000,
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["job_id", "lease_token"],
        "properties": {"job_id": _NAME, "lease_token": _NAME},
    },
}


def _queue_names() -> Field:
    field = words("queues", least=1, most=100, help="In this order; default if silent.")

    def read(value: object) -> object:
        for name in cast("list[str]", field.read(value)):
            if not QUEUE_RULE.fullmatch(name):
                raise ValueError(f"must match {QUEUE_RULE.pattern}, got {shown(name)}")
        return value

    item = {"type": "string", "pattern": f"^{QUEUE_RULE.pattern}$"}
    schema = {**field.schema, "items": item}
    return msgspec.structs.replace(field, read=read, schema=schema)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/workers/claim",
        name="claimJobs",
        summary="Take jobs to work on",
        help="Each job is yours until its lease ends. With wait, an empty answer comes only after"
        " so long.",
        handler=claim,
        permission=Permission.WORK,
        form=(
            text("worker_id", least=1, most=128, required=True, help="Your own name."),
            _queue_names(),
            words("types", most=1000, help="Only jobs of these types; any if silent."),
            integer("limit", 1, 100, default=1),
            duration("wait", most=LONGEST_POLL, help="At most 30 s."),
        ),
        example={"worker_id": "node-1", "queues": ["default"], "limit": 1, "wait": 20},
        answer=ClaimResult,
        patience=None,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/workers/heartbeat",
        name="renewLeases",
        summary="Renew leases",
        help="Each lasts lease_seconds from now. held false: someone else may have the job,"
        " stop working on it.",
        handler=heartbeats,
        permission=Permission.WORK,
        form=(Field(name="leases", schema=_LEASES, read=_leases, required=True),),
        example={"leases": [{"job_id": "5a1c...", "lease_token": "9f..."}]},
        answer=LeaseStates,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/heartbeat",
        name="renewLease",
        summary="Renew one lease",
        handler=heartbeat,
        permission=Permission.WORK,
        form=(TOKEN,),
        answer=LeaseState,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/progress",
        name="reportProgress",
        summary="Tell how far a job is",
        handler=progress,
        permission=Permission.WORK,
        form=(
            TOKEN,
            integer("percent", 0, 100, required=True),
            text("message", most=MAX_LOG_MESSAGE),
        ),
        example={"lease_token": "9f...", "percent": 50, "message": "half"},
        answer=LeaseState,
        errors=LOST,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/checkpoint",
        name="saveCheckpoint",
        summary="Keep state for the next attempt",
        help="The next attempt finds it in its claim. cancel_requested: stop now and fail with"
        " category CANCELLED.",
        handler=checkpoint,
        permission=Permission.WORK,
        form=(TOKEN, blob("data", required=True)),
        example={"lease_token": "9f...", "data": "eyJwYWdlIjozfQ=="},
        answer=LeaseState,
        errors=LOST,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/log",
        name="logLine",
        summary="Keep a line with the job",
        handler=log,
        permission=Permission.WORK,
        form=(
            TOKEN,
            one_of("level", LEVELS),
            text("message", most=MAX_LOG_MESSAGE, required=True),
            integer("attempt", 0, 1000),
            Field(name="fields", schema=MAP, read=texts),
        ),
        example={"lease_token": "9f...", "level": "INFO", "message": "fetched"},
        answer=LeaseState,
        errors=LOST,
    ),
)
