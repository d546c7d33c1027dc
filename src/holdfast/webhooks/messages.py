"""The submission of the job that delivers one end of a job."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import msgspec

from holdfast.model.job import State
from holdfast.model.payload import decode_result
from holdfast.model.reserved import DELIVERIES, DELIVERY
from holdfast.model.status import encoding_of, public_tags
from holdfast.model.submission import Submission
from holdfast.model.times import format_timestamp
from holdfast.webhooks.proof import Proof
from holdfast.webhooks.values import End, Message, WebhookSettings

MOST_BYTES = 64 * 1024
"""A larger result is left out of the message."""
WINDOW = timedelta(days=7)
EVENT_TYPES = {
    State.COMPLETED: "job.completed",
    State.FAILED: "job.failed",
    State.DEAD_LETTER: "job.dead_letter",
    State.CANCELLED: "job.cancelled",
}


async def delivery(
    end: End,
    webhook: str,
    settings: WebhookSettings,
    proof: Proof,
    *,
    url: str = "",
    with_result: bool,
) -> Submission:
    """Return the job that delivers an end to a webhook, or to a job's own callback address.

    The message id is derived from the content and is the job's idempotency key: submitting it
    twice delivers it once.
    """
    about = f"{webhook}\n{url}\n{end.job.id}\n{format_timestamp(end.at)}"
    message_id = "msg_" + hashlib.blake2b(about.encode(), digest_size=16).hexdigest()
    message = Message(webhook, message_id, _body(end, with_result=with_result), url)
    message = await proof.given(message, end.namespace)
    return Submission(
        type=DELIVERY,
        queue=DELIVERIES,
        payload=msgspec.to_builtins(message),
        idempotency_key=message_id,
        idempotency_window=WINDOW,
        correlation_id=end.job.correlation_id or None,
        tags={"webhook": webhook, "job": end.job.id},
        max_attempts=settings.max_attempts,
        backoff=settings.backoff,
        lifetime=settings.lifetime,
        timeout=settings.timeout * 3,
    )


def _body(end: End, *, with_result: bool) -> str:
    job = end.job
    data = _data(end)
    if with_result and job.result is not None and end.at == job.finished_at:
        if len(job.result) <= MOST_BYTES:
            output = decode_result(job.result)
            data["result"] = output if isinstance(output, bytes) else msgspec.Raw(job.result)
            data["result_encoding"] = encoding_of(output)
        else:
            data["result_omitted"] = True
    body = {"type": EVENT_TYPES[end.state], "timestamp": format_timestamp(end.at), "data": data}
    return msgspec.json.encode(body).decode()


def _data(end: End) -> dict[str, object]:
    job = end.job
    failure = job.failure if end.state is not State.COMPLETED else None
    return {
        "job_id": job.id,
        "type": job.type,
        "queue": job.queue,
        "state": end.state,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "created_at": format_timestamp(job.created_at),
        "started_at": format_timestamp(job.started_at) if job.started_at else None,
        "completed_at": format_timestamp(end.at),
        "correlation_id": job.correlation_id or None,
        "tags": public_tags(job.tags),
        "failure": failure
        and {"category": failure.category, "code": failure.code, "message": failure.message},
    }
