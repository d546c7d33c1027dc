"""Routes for workers: claim jobs, renew leases, report progress, checkpoints and log lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.http.endpoint import LARGEST_BODY, LONG_LISTS, Call, Endpoint
from holdfast.http.fields import Field, base64_bytes, duration, integer, text, text_list
from holdfast.http.permissions import Permission
from holdfast.http.presence import PRESENT_FOR
from holdfast.http.responses import JsonResponse
from holdfast.http.workers import (
    ClaimedJob,
    ClaimResult,
    DependencyOutputs,
    LeaseState,
    LeaseStates,
    RemoteWorkers,
)
from holdfast.model.job import DEFAULT_QUEUE, LogLine, Progress
from holdfast.model.payload import clean
from holdfast.model.reserved import is_internal, refusal
from holdfast.model.submission import QUEUE_RULE
from holdfast.model.times import shown
from holdfast.model.workers import WorkerInfo
from holdfast.runtime.off_loop import off_loop
from holdfast.store import Fence, JobNote
from holdfast.tasks.context import LEVELS, MAX_LOG_MESSAGE

MAX_POLL = 30.0
MOST_NAMES = 65_536
"""Bytes of the queues and types that a worker announces."""


def remote_workers(call: Call) -> RemoteWorkers:
    """Return what workers may do in the caller's namespace."""
    app = call.service.app
    largest = app.limits.payload_bytes
    return RemoteWorkers(call.operations.store, app.randomness, app.redaction, largest)


def fence_of(call: Call) -> Fence:
    """Return the job in the path with the lease token in the body."""
    return Fence(call.job_id, str(call.fields["lease_token"]))


async def claim(call: Call) -> JsonResponse:
    """Claim jobs; with ``wait``, wait for some."""
    fields = call.fields
    store = call.operations.store
    queues = tuple(cast("list[str]", fields.get("queues", [DEFAULT_QUEUE])))
    types = tuple(cast("list[str]", fields.get("types", ())))
    _check_names(queues, store.capabilities.queue_rule)
    _check_size(queues, types)
    limit = cast("int", fields.get("limit", 1))
    worker = WorkerInfo(
        id=str(fields["worker_id"]),
        host="",
        pid=0,
        queues=queues,
        types=types,
        slots=limit,
        running=0,
        started_at=store.now(),
    )
    wait = cast("timedelta", fields.get("wait", timedelta(0)))
    await call.service.presence.admit(call.caller.namespace, worker.id, wait + PRESENT_FOR)
    jobs = await remote_workers(call).claim(worker, limit, wait, call.while_connected)
    size = sum(len(job.payload) + len(job.checkpoint or b"") for job in jobs)
    claimed = await off_loop(size, lambda: ClaimResult(tuple(map(ClaimedJob.of, jobs))))
    return JsonResponse(claimed, size=size)


def _check_names(queues: Sequence[str], rule: re.Pattern[str]) -> None:
    for name in queues:
        if not rule.fullmatch(name):
            message = f"must match {rule.pattern}, got {shown(name)}"
            raise ValidationError([Fault("queues", "INVALID", message)])


def _check_size(queues: Sequence[str], types: Sequence[str]) -> None:
    """Refuse names that are too long together: the store keeps them while a worker is present."""
    size = sum(len(name.encode()) for name in (*queues, *types))
    if size > MOST_NAMES:
        message = f"may have {MOST_NAMES} bytes together with queues, got {size}"
        raise ValidationError([Fault("types", "TOO_LARGE", message)])


async def renew_many(call: Call) -> JsonResponse:
    """Renew many leases."""
    fences = cast("list[Fence]", call.fields["leases"])
    return JsonResponse(LeaseStates(tuple(await remote_workers(call).renew(fences))))


async def renew(call: Call) -> JsonResponse:
    """Renew one lease."""
    (state,) = await remote_workers(call).renew([fence_of(call)])
    return JsonResponse(state)


async def progress(call: Call) -> JsonResponse:
    """Record the progress of a job."""
    reported = Progress(
        cast("int", call.fields["percent"]),
        str(call.fields.get("message", "")),
        call.operations.store.now(),
    )
    return JsonResponse(
        await remote_workers(call).note(JobNote(fence=fence_of(call), progress=reported))
    )


async def dependency_results(call: Call) -> JsonResponse:
    """Return the results of the jobs that a claimed job waited for."""
    size, outputs = await remote_workers(call).dependency_outputs(fence_of(call))
    return JsonResponse(outputs, size=size)


async def checkpoint(call: Call) -> JsonResponse:
    """Store state for the next attempt."""
    data = cast("bytes", call.fields["data"])
    return JsonResponse(
        await remote_workers(call).note(JobNote(fence=fence_of(call), checkpoint=data))
    )


async def log(call: Call) -> JsonResponse:
    """Store a log line with the job."""
    line_fields = cast("dict[str, str]", call.fields.get("fields", {}))
    line = LogLine(
        call.operations.store.now(),
        str(call.fields.get("level", "INFO")),
        str(call.fields["message"]),
        fields=line_fields,
    )
    return JsonResponse(await remote_workers(call).note(JobNote(fence=fence_of(call), log=line)))


def _read_leases(value: object) -> list[Fence]:
    if not isinstance(value, list) or not 1 <= len(value) <= 1000:
        raise ValueError(f"must be a list of 1 to 1000 leases, got {shown(value)}")
    try:
        leases = msgspec.convert(value, list[_Lease])
    except msgspec.ValidationError as error:
        raise ValueError(f"must contain job_id and lease_token: {error}") from None
    if any(len(lease.job_id) > 256 or len(lease.lease_token) > 256 for lease in leases):
        raise ValueError("must contain ids and tokens of at most 256 characters")
    return [Fence(clean(lease.job_id), clean(lease.lease_token)) for lease in leases]


class _Lease(msgspec.Struct, forbid_unknown_fields=True):
    job_id: str
    lease_token: str


def string_map(value: object) -> dict[str, str]:
    """Read a map of strings."""
    if not isinstance(value, dict) or len(value) > 64:
        raise ValueError(f"must be a map of at most 64 strings, got {shown(value)}")
    for one in value.values():
        if not isinstance(one, str):
            raise ValueError(f"must contain strings, got {shown(one)}")
    return {clean(str(name), 128): clean(one, 1024) for name, one in value.items()}


def one_of(name: str, choices: tuple[str, ...]) -> Field:
    """A field with one of several values."""

    def read(value: object) -> object:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, got {shown(value)}")
        return value

    return Field(name=name, schema={"type": "string", "enum": list(choices)}, read=read)


STRING_MAP = {"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string"}}
TOKEN = text(
    "lease_token", minimum=1, maximum=256, required=True, description="lease_token of the claim."
)
JOB = "/api/v1/jobs/{job_id}"
STALE = ("STALE_LEASE", "EXECUTION_TIMEOUT")
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
    field = text_list(
        "queues",
        minimum=1,
        maximum=100,
        description="Claimed from in this order; `default` if absent.",
    )

    def read(value: object) -> object:
        for name in cast("list[str]", field.read(value)):
            if is_internal(name):
                raise ValueError(refusal(name))
        return value

    item = {"type": "string", "pattern": f"^{QUEUE_RULE.pattern}$"}
    schema = {**field.schema, "items": item}
    return msgspec.structs.replace(field, read=read, schema=schema)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/workers/claim",
        name="claimJobs",
        body_bytes=LONG_LISTS,
        summary="Claim jobs",
        description="The worker holds each job until its lease ends. With wait, an empty response"
        " comes only after so long. Large payloads are claimed a few at a time: a response has"
        " at most 32 MiB of them, unless one job has more.",
        handler=claim,
        permission=Permission.WORK,
        body_fields=(
            text(
                "worker_id",
                minimum=1,
                maximum=128,
                required=True,
                description="The name of the worker.",
            ),
            _queue_names(),
            text_list(
                "types",
                maximum=1000,
                description="Only jobs of these types; any type if absent. At most 64 KiB together"
                " with queues.",
            ),
            integer("limit", 1, 100, default=1),
            duration("wait", maximum=MAX_POLL, description="At most 30 s."),
        ),
        example={"worker_id": "node-1", "queues": ["default"], "limit": 1, "wait": 20},
        response=ClaimResult,
        timeout=None,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/workers/heartbeat",
        name="renewLeases",
        body_bytes=LONG_LISTS,
        summary="Renew leases",
        description="Each lease lasts lease_seconds from now. held false: another worker may have"
        " the job; stop working on it. timed_out: the attempt is past its deadline and failed as"
        " TIMEOUT; stop it.",
        handler=renew_many,
        permission=Permission.WORK,
        body_fields=(Field(name="leases", schema=_LEASES, read=_read_leases, required=True),),
        example={"leases": [{"job_id": "5a1c...", "lease_token": "9f..."}]},
        response=LeaseStates,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/heartbeat",
        name="renewLease",
        summary="Renew one lease",
        handler=renew,
        permission=Permission.WORK,
        body_fields=(TOKEN,),
        response=LeaseState,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/dependency-results",
        name="getDependencyResults",
        summary="Get the results of the jobs that a claimed job waited for",
        description="For FAN_IN these are the named job and everything it spawned.",
        handler=dependency_results,
        permission=Permission.WORK,
        body_fields=(TOKEN,),
        response=DependencyOutputs,
        errors=STALE,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/progress",
        name="reportProgress",
        summary="Report progress",
        handler=progress,
        permission=Permission.WORK,
        body_fields=(
            TOKEN,
            integer("percent", 0, 100, required=True),
            text("message", maximum=MAX_LOG_MESSAGE),
        ),
        example={"lease_token": "9f...", "percent": 50, "message": "half"},
        response=LeaseState,
        errors=STALE,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/checkpoint",
        name="saveCheckpoint",
        body_bytes=LARGEST_BODY,
        summary="Save a checkpoint for the next attempt",
        description="The claim of the next attempt contains it. cancel_requested: stop now and fail"
        " with category CANCELLED.",
        handler=checkpoint,
        permission=Permission.WORK,
        body_fields=(TOKEN, base64_bytes("data", required=True)),
        example={"lease_token": "9f...", "data": "eyJwYWdlIjozfQ=="},
        response=LeaseState,
        errors=STALE,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/log",
        name="logLine",
        summary="Store a log line with the job",
        handler=log,
        permission=Permission.WORK,
        body_fields=(
            TOKEN,
            one_of("level", LEVELS),
            text("message", maximum=MAX_LOG_MESSAGE, required=True),
            integer("attempt", 0, 1000, description="Ignored: the lease names the attempt."),
            Field(name="fields", schema=STRING_MAP, read=string_map),
        ),
        example={"lease_token": "9f...", "level": "INFO", "message": "fetched"},
        response=LeaseState,
        errors=STALE,
    ),
)
