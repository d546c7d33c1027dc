"""Routes for workers: complete, fail or give back a job, and spawn children."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import cast

import msgspec

from holdfast.errors import Fault, PermanentError, QuotaError, ValidationError
from holdfast.http.endpoint import LARGEST_BODY, LONG_LISTS, Call, Endpoint
from holdfast.http.fields import (
    NULL,
    Field,
    base64_bytes,
    check_rest,
    decode_json,
    duration,
    raw_fields,
    text,
)
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.http.routes.leases import (
    JOB,
    STALE,
    STRING_MAP,
    TOKEN,
    fence_of,
    one_of,
    remote_workers,
    string_map,
)
from holdfast.http.submission_body import submission_of
from holdfast.http.workers import Settlement
from holdfast.model import lifecycle
from holdfast.model.job import Failure, FailureCategory, Job, read_extra
from holdfast.model.payload import MAX_RESULT, PayloadError, encode, encode_result
from holdfast.model.status import OutputEncoding
from holdfast.model.submission import Spawner, Submission
from holdfast.model.times import shown
from holdfast.model.validation import MAX_KEY
from holdfast.runtime.off_loop import off_loop

MAX_MESSAGE = 4096
MAX_TRACE = 16_384


async def complete(call: Call) -> JsonResponse:
    """Complete a job."""
    result = await off_loop(len(call.body), partial(_output, call))

    def decide(job: Job, now: datetime) -> Job:
        return lifecycle.completed(job, result, now=now)

    settled = await remote_workers(call).settle(fence_of(call), decide, completes=True)
    return JsonResponse(settled)


def _output(call: Call) -> bytes | None:
    """Return the result to store."""
    output = bytes(cast("msgspec.Raw", call.fields.get("output", NULL)))
    if call.fields.get("output_encoding") == OutputEncoding.BASE64:
        return _bytes_output(output)
    if output == bytes(NULL):
        return None
    try:
        if len(output) > MAX_RESULT:
            raise PayloadError("TOO_LARGE", f"must have at most {MAX_RESULT} bytes as JSON")
        return encode(msgspec.Raw(output))[0]
    except PayloadError as error:
        raise ValidationError([error.fault("output")]) from None


def _bytes_output(output: bytes) -> bytes | None:
    try:
        return encode_result(_BASE64_OUTPUT.read(decode_json(output)))
    except ValueError as error:
        raise ValidationError([Fault("output", "INVALID", str(error))]) from None
    except PermanentError as error:
        raise ValidationError([Fault("output", "TOO_LARGE", str(error))]) from None


async def fail(call: Call) -> JsonResponse:
    """Fail a job."""
    fields = call.fields
    failure = Failure(
        category=FailureCategory(str(fields.get("category", FailureCategory.TEMPORARY))),
        message=str(fields["message"]),
        code=str(fields.get("code", "")),
        stack_trace=str(fields.get("stack_trace", "")),
        context=cast("dict[str, str]", fields.get("context", {})),
        retry_after=cast("timedelta | None", fields.get("retry_after")),
        host=str(fields.get("host", "")),
    )
    return JsonResponse(await remote_workers(call).fail(fence_of(call), failure))


async def give_back(call: Call) -> JsonResponse:
    """Give a job back; the attempt does not count."""

    def decide(job: Job, now: datetime) -> Job:
        return lifecycle.given_back(job, now=now)

    return JsonResponse(await remote_workers(call).settle(fence_of(call), decide))


class SpawnedBody(msgspec.Struct, frozen=True):
    """The child job: a new one, or the one that has its key already."""

    job_id: str


async def spawn(call: Call) -> JsonResponse:
    """Submit a child of a running job."""
    read = partial(_child, cast("msgspec.Raw", call.fields["job"]))
    submission = await off_loop(len(call.body), read)
    submitter = call.service.submitter_for(call.operations)
    key, fence = call.fields.get("key"), fence_of(call)
    parent = await remote_workers(call).held(fence)
    middleware = call.service.app.registry.seams.middleware
    submission = await middleware.prepared(submission, read_extra(parent.extra).headers)
    key = None if key is None else str(key)
    async with call.service.key_limits.counting(call.caller):
        await _admit_child(call, parent.id, key)
        job_id = await submitter.spawn(submission, fence, key, extra=parent.extra)
    return JsonResponse(SpawnedBody(job_id), 201)


async def _admit_child(call: Call, parent_id: str, key: str | None) -> None:
    """Raise QuotaError without room for a new child; one that exists already needs none."""
    try:
        await call.service.key_limits.admit_jobs(call.caller, 1)
    except QuotaError:
        if key is None or await call.operations.store.get([Spawner(parent_id, key).child_id]) == [
            None
        ]:
            raise


def _child(job: msgspec.Raw) -> Submission:
    if not bytes(job).startswith(b"{"):
        message = f"must be a submission, got {shown(decode_json(bytes(job)))}"
        raise ValidationError([Fault("job", "INVALID", message)])
    check_rest(bytes(job), ("payload",))
    return submission_of(raw_fields(bytes(job)))


_STALE_OR_MISSING = ("STALE_LEASE", "NOT_FOUND")
_BASE64_OUTPUT = base64_bytes("output")

ENDPOINTS = (
    Endpoint(
        method="POST",
        path=f"{JOB}/complete",
        name="completeJob",
        body_bytes=LARGEST_BODY,
        summary="Complete a job",
        description="A repeat with the same token gets the same response. With output_encoding"
        " base64, output is a string of base64 and the result is bytes. After the deadline of the"
        " attempt the job fails as TIMEOUT instead.",
        handler=complete,
        permission=Permission.WORK,
        body_fields=(
            TOKEN,
            Field(name="output", schema={}, raw=True, description="Any JSON, or base64 of bytes."),
            one_of("output_encoding", tuple(encoding.value for encoding in OutputEncoding)),
        ),
        example={"lease_token": "9f...", "output": {"sent": True}},
        response=Settlement,
        errors=(*_STALE_OR_MISSING, "EXECUTION_TIMEOUT"),
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/fail",
        name="failJob",
        body_bytes=LONG_LISTS,
        summary="Fail a job",
        description="TEMPORARY (the default), TIMEOUT and SYSTEM are retried while attempts are"
        " left, TIMEOUT and SYSTEM unless the job has retry_timeouts or retry_crashes false;"
        " PERMANENT is not. CANCELLED confirms a requested cancellation.",
        handler=fail,
        permission=Permission.WORK,
        body_fields=(
            TOKEN,
            text("message", maximum=MAX_MESSAGE, required=True),
            one_of("category", tuple(category.value for category in FailureCategory)),
            text("code", maximum=128),
            text("stack_trace", maximum=MAX_TRACE),
            Field(name="context", schema=STRING_MAP, read=string_map),
            duration("retry_after", description="Instead of the job's own backoff."),
            text("host", maximum=256),
        ),
        example={"lease_token": "9f...", "message": "no such mailbox", "category": "PERMANENT"},
        response=Settlement,
        errors=_STALE_OR_MISSING,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/give-back",
        name="giveBackJob",
        summary="Give a job back",
        description="For a worker that stops. The attempt does not count.",
        handler=give_back,
        permission=Permission.WORK,
        body_fields=(TOKEN,),
        response=Settlement,
        errors=_STALE_OR_MISSING,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/spawn",
        name="spawnJob",
        body_bytes=LARGEST_BODY,
        summary="Submit a child of a running job",
        description="A later attempt that spawns with the same key gets the same child. An"
        " idempotency key that another job holds gets that job.",
        handler=spawn,
        permission=Permission.WORK,
        body_fields=(
            TOKEN,
            text("key", minimum=1, maximum=MAX_KEY),
            Field(
                name="job",
                schema={"$ref": "#/components/schemas/JobSubmission"},
                raw=True,
                required=True,
            ),
        ),
        example={"lease_token": "9f...", "key": "page-3", "job": {"type": "page", "payload": 3}},
        response=SpawnedBody,
        status=201,
        errors=(*STALE, "DUPLICATE"),
    ),
)
