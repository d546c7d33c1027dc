"""Routes that put jobs in."""

from __future__ import annotations

from holdfast.api.submissions import BatchBody, SubmissionBody, submitted
from holdfast.errors import Fault, ValidationError
from holdfast.http.endpoint import Answer, Call, Endpoint
from holdfast.http.fields import Field, text
from holdfast.http.permissions import Permission
from holdfast.http.submission_body import read_batch, read_submission
from holdfast.model.results import SubmissionStatus
from holdfast.model.validation import MAX_KEY

KEY = b"idempotency-key"
KEY_HEADER = text(
    "Idempotency-Key",
    least=1,
    most=MAX_KEY,
    help="The idempotency key, if the body has none. A request that is repeated with the same"
    " key and body creates nothing new.",
)
BATCH_KEY_HEADER = text(
    "Idempotency-Key",
    least=1,
    most=MAX_KEY - len(":999"),
    help="Each job without an idempotency key of its own gets KEY:POSITION.",
)


async def submit(call: Call) -> Answer:
    """Submit one job; answered once it is durable."""
    submission = read_submission(call.body, key=_key(call, KEY_HEADER))
    if call.caller.live_jobs is not None:
        await call.service.key_limits.admit_jobs(call.caller, 1)
    result = await call.operations.submit(submission)
    new = result.status is SubmissionStatus.ACCEPTED
    place = {"location": f"/api/v1/jobs/{result.job_id}"}
    return Answer(submitted(result), 201 if new else 200, place)


async def submit_batch(call: Call) -> Answer:
    """Submit many jobs; answered once they are durable."""
    submissions, atomic = read_batch(call.body, key=_key(call, BATCH_KEY_HEADER))
    await call.service.key_limits.admit_jobs(call.caller, len(submissions))
    return Answer(submitted(await call.operations.submit_batch(submissions, atomic=atomic)))


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
        summary="Submit a job",
        help="Answered once the job is stored durably. 201: it is new. 200: the idempotency key"
        " belongs to a job with the same payload, which is named instead.",
        handler=submit,
        permission=Permission.SUBMIT,
        body={"$ref": "#/components/schemas/JobSubmission"},
        header=(KEY_HEADER,),
        example={
            "type": "email.send",
            "payload": {"to": "a@example.com", "subject": "hi"},
            "priority": "HIGH",
            "max_attempts": 5,
            "tags": {"tenant": "acme"},
        },
        answer=SubmissionBody,
        status=201,
        others={200: "A job with this idempotency key and payload exists already."},
        errors=("DUPLICATE",),
        patience=None,  # a submission gives up by itself, after 30 s
    ),
    Endpoint(
        method="POST",
        path="/api/v1/jobs/batch",
        name="submitBatch",
        summary="Submit 1 to 1000 jobs",
        help="atomic: all or none are stored, and one wrong job is an error. Otherwise each job"
        " has its own result, REJECTED with an error for those that were refused. With an"
        " Idempotency-Key each job without its own gets KEY:POSITION.",
        handler=submit_batch,
        permission=Permission.SUBMIT,
        body={"$ref": "#/components/schemas/BatchSubmission"},
        header=(BATCH_KEY_HEADER,),
        example={
            "atomic": True,
            "jobs": [
                {"type": "report.fetch", "payload": {"month": 1}, "ref": "fetch"},
                {"type": "report.send", "payload": None, "depends_on": ["fetch"]},
            ],
        },
        answer=BatchBody,
        errors=("DUPLICATE",),
        patience=None,  # a submission gives up by itself, after 30 s
    ),
)
