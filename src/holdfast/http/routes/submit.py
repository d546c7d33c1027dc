"""Routes that submit jobs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from holdfast.api.submissions import BatchBody, SubmissionBody, encodable
from holdfast.errors import Fault, QuotaError, ValidationError
from holdfast.http.endpoint import LARGEST_BODY, Call, Endpoint
from holdfast.http.fields import Field, text
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.http.submission_body import read_batch, read_submission
from holdfast.model.results import SubmissionStatus
from holdfast.model.submission import Submission
from holdfast.model.validation import MAX_KEY
from holdfast.runtime.off_loop import off_loop

KEY = b"idempotency-key"
KEY_HEADER = text(
    "Idempotency-Key",
    minimum=1,
    maximum=MAX_KEY,
    description="The idempotency key, if the body has none. Repeating a request with the same key"
    " and body creates no second job.",
)
BATCH_KEY_HEADER = text(
    "Idempotency-Key",
    minimum=1,
    maximum=MAX_KEY - len(":999"),
    description="Each job without its own idempotency key gets KEY:POSITION.",
)


async def submit(call: Call) -> JsonResponse:
    """Submit one job; respond when it is stored durably."""
    read = partial(read_submission, call.body, key=_key(call, KEY_HEADER))
    submission = await off_loop(len(call.body), read)
    async with call.service.key_limits.counting(call.caller):
        await _admit(call, [submission])
        result = await call.operations.submit(submission)
    is_new = result.status is SubmissionStatus.ACCEPTED
    location = {"location": f"/api/v1/jobs/{result.job_id}"}
    return JsonResponse(encodable(result), 201 if is_new else 200, location)


async def submit_batch(call: Call) -> JsonResponse:
    """Submit many jobs; respond when they are stored durably."""
    read = partial(read_batch, call.body, key=_key(call, BATCH_KEY_HEADER))
    submissions, atomic = await off_loop(len(call.body), read)
    async with call.service.key_limits.counting(call.caller):
        await _admit(call, submissions)
        batch = await call.operations.submit_batch(submissions, atomic=atomic)
    return JsonResponse(encodable(batch))


async def _admit(call: Call, submissions: Sequence[Submission]) -> None:
    """Raise QuotaError without room for the new jobs; duplicates of existing jobs need none."""
    limits, count = call.service.key_limits, len(submissions)
    try:
        await limits.admit_jobs(call.caller, count)
    except QuotaError:
        new = await call.service.app.submitter(call.operations.store).count_new(submissions)
        if new == count:
            raise
        await limits.admit_jobs(call.caller, new)


def _key(call: Call, header: Field) -> str | None:
    given = call.headers.get(KEY)
    if given is None:
        return None
    try:
        return str(header.read(given.decode("utf-8")))
    except ValueError as error:
        raise ValidationError([Fault("Idempotency-Key", "INVALID", str(error))]) from None


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/jobs",
        name="submitJob",
        body_bytes=LARGEST_BODY,
        summary="Submit a job",
        description="Responds when the job is stored durably. 201: the job is new. 200: the"
        " idempotency key belongs to an existing job with the same payload; the response names"
        " that job.",
        handler=submit,
        permission=Permission.SUBMIT,
        body_schema={"$ref": "#/components/schemas/JobSubmission"},
        headers=(KEY_HEADER,),
        example={
            "type": "email.send",
            "payload": {"to": "a@example.com", "subject": "hi"},
            "priority": "HIGH",
            "max_attempts": 5,
            "tags": {"tenant": "acme"},
        },
        response=SubmissionBody,
        status=201,
        other_statuses={
            200: "A job with this idempotency key and payload, or this deduplication id, exists."
        },
        errors=("DUPLICATE",),
        timeout=None,  # a submission stops by itself after 30 s
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/batch",
        name="submitBatch",
        body_bytes=LARGEST_BODY,
        summary="Submit 1 to 1000 jobs",
        description="atomic: all jobs are stored or none, and one invalid job is an error."
        " Otherwise each job has its own result; an invalid one is REJECTED with an error. With an"
        " Idempotency-Key header each job without its own key gets KEY:POSITION.",
        handler=submit_batch,
        permission=Permission.SUBMIT,
        body_schema={"$ref": "#/components/schemas/BatchSubmission"},
        headers=(BATCH_KEY_HEADER,),
        example={
            "atomic": True,
            "jobs": [
                {"type": "report.fetch", "payload": {"month": 1}, "ref": "fetch"},
                {"type": "report.send", "payload": None, "depends_on": ["fetch"]},
            ],
        },
        response=BatchBody,
        errors=("DUPLICATE",),
        timeout=None,  # a submission stops by itself after 30 s
    ),
)
