"""Jobs that BullMQ clients made: read with BullMQ's defaults, whatever they hold."""

from __future__ import annotations

from datetime import timedelta

from holdfast.job import Encoding, Failure, FailureCategory, Job, State
from holdfast.policy import HOUR, MAX_ATTEMPTS, Backoff, BackoffKind
from holdfast.profiles import BULLMQ
from holdfast.store.redis.fields import Reader, instant, mutable, read_cancel

_MILLISECOND = timedelta(milliseconds=1)
STALL = "stalled"


def read_job(job_id: str, queue: str, fields: Reader) -> Job:
    """Read a job that a BullMQ client made."""
    found = fields.json("opts")
    options = found if isinstance(found, dict) else {}
    state = State(fields.text("hf:state"))
    ended = state is State.COMPLETED
    attempts = options.get("attempts")
    allowed = attempts if isinstance(attempts, int) else 1
    parent = fields.text("parentKey")
    return Job(
        id=job_id,
        type=fields.text("name"),
        queue=queue,
        payload=fields.raw("data") or b"{}",
        encoding=Encoding.JSON,
        profile=BULLMQ.name,
        created_at=instant(fields.number("hf:crt")),
        timeout=BULLMQ.timeout,
        lease_ttl=BULLMQ.lease,
        lifetime=BULLMQ.lifetime,
        backoff=backoff(options.get("backoff")),
        max_attempts=max(1, min(allowed, MAX_ATTEMPTS), fields.number("atm")),
        tags={"bullmq.parent": parent} if parent else {},
        cancel=read_cancel(fields.raw("hf:rest")),
        failure=None if ended else failure(fields),
        result=fields.raw("returnvalue") if ended else None,
        **mutable(fields, state),  # type: ignore[arg-type]  # one value per field of Job
    )


def backoff(option: object) -> Backoff:
    """Read BullMQ's backoff option; a strategy only Node knows becomes exponential."""
    if isinstance(option, int | float):
        option = {"type": "fixed", "delay": option}
    if not isinstance(option, dict):
        return Backoff(
            strategy=BackoffKind.CONSTANT, initial_delay=timedelta(0), max_delay=timedelta(0)
        )
    given = option.get("delay")
    delay = (
        max(0.0, float(given)) * _MILLISECOND if isinstance(given, int | float) else _MILLISECOND
    )
    fixed = option.get("type") == "fixed"
    return Backoff(
        strategy=BackoffKind.CONSTANT if fixed else BackoffKind.EXPONENTIAL,
        initial_delay=delay,
        max_delay=max(delay, HOUR),
        jitter=bool(option.get("jitter")),
    )


def failure(fields: Reader) -> Failure | None:
    """Read why a BullMQ worker's attempt failed."""
    reason = fields.raw("failedReason")
    if reason is None:
        return None
    stack = fields.json("stacktrace")
    message = reason.decode("utf-8", "replace")
    stalled = STALL in message
    return Failure(
        category=FailureCategory.SYSTEM if stalled else FailureCategory.TEMPORARY,
        code="STALLED" if stalled else "",
        message=message,
        stack_trace=str(stack[-1]) if isinstance(stack, list) and stack else "",
        attempt=fields.number("atm"),
        at=fields.time("hf:fin") or fields.time("hf:upd"),
        worker=fields.text("hf:wrk"),
    )
