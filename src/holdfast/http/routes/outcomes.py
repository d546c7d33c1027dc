"""Routes for workers: say how jobs went, give them back, spawn children."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import cast

import msgspec

from holdfast.errors import ValidationError
from holdfast.http.endpoint import Answer, Call, Endpoint
from holdfast.http.fields import Field, duration, raw_fields, text
from holdfast.http.permissions import Permission
from holdfast.http.routes.leases import JOB, LOST, MAP, TOKEN, fence_of, one_of, texts, workplace
from holdfast.http.submission_body import submission_of
from holdfast.http.workers import Settlement
from holdfast.model import lifecycle
from holdfast.model.job import Failure, FailureCategory, Job
from holdfast.model.payload import PayloadError, encode
from holdfast.model.times import shown

MAX_MESSAGE = 4096
MAX_TRACE = 16_384


async def complete(call: Call) -> Answer:
    """Say that a job is done."""
    output = raw_fields(call.body).get("output")
    try:
        result = None if output is None or bytes(output) == b"null" else encode(output)[0]
    except PayloadError as error:
        raise ValidationError([error.fault("output")]) from None

    def decide(job: Job, now: datetime) -> Job:
        return lifecycle.completed(job, result, now=now)

    return Answer(await workplace(call).settle(fence_of(call), decide))


async def fail(call: Call) -> Answer:
    """Say that a job failed."""
    form = call.form
    failure = Failure(
        category=FailureCategory(str(form.get("category", FailureCategory.TEMPORARY))),
        message=str(form["message"]),
        code=str(form.get("code", "")),
        stack_trace=str(form.get("stack_trace", "")),
        context=cast("dict[str, str]", form.get("context", {})),
        retry_after=cast("timedelta | None", form.get("retry_after")),
        host=str(form.get("host", "")),
    )
    jitter = call.service.app.randomness.jitter()

    def decide(job: Job, now: datetime) -> Job:
        return lifecycle.after_failure(job, failure, now=now, jitter=jitter)

    return Answer(await workplace(call).settle(fence_of(call), decide))


async def give_back(call: Call) -> Answer:
    """Return a job unworked; it uses up no attempt."""

    def decide(job: Job, now: datetime) -> Job:
        return lifecycle.given_back(job, now=now)

    return Answer(await workplace(call).settle(fence_of(call), decide))


class SpawnedBody(msgspec.Struct, frozen=True):
    """The child job: a new one, or the one that the key made before."""

    job_id: str


async def spawn(call: Call) -> Answer:
    """Submit a child of a running job."""
    submission = submission_of(cast("Mapping[str, msgspec.Raw]", call.form["job"]))
    submitter = call.service.app.submitter(call.operations.store)
    key = call.form.get("key")
    job_id = await submitter.spawn(submission, fence_of(call), None if key is None else str(key))
    return Answer(SpawnedBody(job_id), 201)


def _child(value: object) -> Mapping[str, msgspec.Raw]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a submission, got {shown(value)}")
    return raw_fields(msgspec.json.encode(value))


_GONE = ("STALE_LEASE", "NOT_FOUND")

ENDPOINTS = (
    Endpoint(
        method="POST",
        path=f"{JOB}/complete",
        name="completeJob",
        summary="Say that a job is done",
        help="A repeat with the same token is answered like the first time.",
        handler=complete,
        permission=Permission.WORK,
        form=(TOKEN, Field(name="output", schema={}, help="Any JSON.")),
        example={"lease_token": "9f...", "output": {"sent": True}},
        answer=Settlement,
        errors=_GONE,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/fail",
        name="failJob",
        summary="Say that a job failed",
        help="TEMPORARY (the default), TIMEOUT and SYSTEM are retried while attempts are left,"
        " PERMANENT is not; CANCELLED answers a wish to cancel.",
        handler=fail,
        permission=Permission.WORK,
        form=(
            TOKEN,
            text("message", most=MAX_MESSAGE, required=True),
            one_of("category", tuple(category.value for category in FailureCategory)),
            text("code", most=128),
            text("stack_trace", most=MAX_TRACE),
            Field(name="context", schema=MAP, read=texts),
            duration("retry_after", help="Instead of the job's own backoff."),
            text("host", most=256),
        ),
        example={"lease_token": "9f...", "message": "no such mailbox", "category": "PERMANENT"},
        answer=Settlement,
        errors=_GONE,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/give-back",
        name="giveBackJob",
        summary="Return a job unworked",
        help="For a worker that stops: uses up no attempt.",
        handler=give_back,
        permission=Permission.WORK,
        form=(TOKEN,),
        answer=Settlement,
        errors=_GONE,
    ),
    Endpoint(
        method="POST",
        path=f"{JOB}/spawn",
        name="spawnJob",
        summary="Submit a child of a running job",
        help="With a key, a later attempt that spawns the same key gets the same child back.",
        handler=spawn,
        permission=Permission.WORK,
        form=(
            TOKEN,
            text("key", least=1),
            Field(
                name="job",
                schema={"$ref": "#/components/schemas/JobSubmission"},
                read=_child,
                required=True,
            ),
        ),
        example={"lease_token": "9f...", "key": "page-3", "job": {"type": "page", "payload": 3}},
        answer=SpawnedBody,
        status=201,
        errors=LOST,
    ),
)
