"""Jobs that BullMQ clients made: read with BullMQ's defaults, whatever they hold."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.job import Encoding, Failure, FailureCategory, Job, Priority, Progress, State
from holdfast.policy import HOUR, MAX_ATTEMPTS, Backoff, BackoffKind
from holdfast.profiles import BULLMQ

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
STALL = "stalled"


class Reader:
    """Typed access to the fields of a hash, absent ones included."""

    def __init__(self, fields: Mapping[str, bytes | int | None]) -> None:
        self._fields = fields

    def maybe(self, name: str) -> bytes | None:
        """Return a field as it is."""
        value = self._fields[name]
        return str(value).encode() if isinstance(value, int) else value

    def bytes(self, name: str) -> bytes:
        """Return a field, empty when absent."""
        return self.maybe(name) or b""

    def str(self, name: str) -> str:
        """Return a field as text."""
        return self.bytes(name).decode("utf-8", "replace")

    def int(self, name: str) -> int:
        """Return a field as a number, 0 when absent or not one."""
        try:
            return int(self.bytes(name) or 0)
        except ValueError:
            return 0

    def time(self, name: str) -> datetime | None:
        """Return a field of microseconds as an instant."""
        value = self.bytes(name)
        return _EPOCH + timedelta(microseconds=int(value)) if value else None

    def json(self, name: str) -> object:
        """Return a field of JSON, None when it is not."""
        try:
            return msgspec.json.decode(self.bytes(name))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


def read_job(job_id: str, queue: str, fields: Mapping[str, bytes | int | None]) -> Job:
    """Read a job that a BullMQ client made."""
    from holdfast.store.redis.wire import mutable, read_cancel

    text = Reader(fields)
    found = text.json("opts")
    options = found if isinstance(found, dict) else {}
    state = State(text.str("hf:state"))
    ended = state is State.COMPLETED
    attempts = options.get("attempts")
    allowed = attempts if isinstance(attempts, int) else 1
    parent = text.str("parentKey")
    return Job(
        id=job_id,
        type=text.str("name"),
        queue=queue,
        payload=text.bytes("data") or b"{}",
        encoding=Encoding.JSON,
        profile=BULLMQ.name,
        created_at=_EPOCH + timedelta(microseconds=text.int("hf:crt")),
        timeout=BULLMQ.timeout,
        lease_ttl=BULLMQ.lease,
        lifetime=BULLMQ.lifetime,
        backoff=backoff(options.get("backoff")),
        max_attempts=max(1, min(allowed, MAX_ATTEMPTS), text.int("atm")),
        tags={"bullmq.parent": parent} if parent else {},
        cancel=read_cancel(text.maybe("hf:rest")),
        failure=None if ended else failure(text),
        result=text.maybe("returnvalue") if ended else None,
        **mutable(text, state),  # type: ignore[arg-type]  # one value per field of Job
    )


def level(priority: int) -> int:
    """Return the level a BullMQ priority number means; numbers above 4 are BULK."""
    return max(0, min(int(Priority.BULK), priority))


def backoff(option: object) -> Backoff:
    """Read BullMQ's backoff option; a strategy only Node knows becomes exponential."""
    if isinstance(option, int | float):
        option = {"type": "fixed", "delay": option}
    if not isinstance(option, dict):
        return Backoff(
            strategy=BackoffKind.CONSTANT, initial_delay=timedelta(0), max_delay=timedelta(0)
        )
    given = option.get("delay")
    delay = max(0.0, float(given)) * _MILLISECOND if isinstance(given, int | float) else _MILLISECOND
    fixed = option.get("type") == "fixed"
    return Backoff(
        strategy=BackoffKind.CONSTANT if fixed else BackoffKind.EXPONENTIAL,
        initial_delay=delay,
        max_delay=max(delay, HOUR),
        jitter=bool(option.get("jitter")),
    )


def failure(text: Reader) -> Failure | None:
    """Read why a BullMQ worker's attempt failed."""
    reason = text.maybe("failedReason")
    if reason is None:
        return None
    stack = text.json("stacktrace")
    message = reason.decode("utf-8", "replace")
    stalled = STALL in message
    return Failure(
        category=FailureCategory.SYSTEM if stalled else FailureCategory.TEMPORARY,
        code="STALLED" if stalled else "",
        message=message,
        stack_trace=str(stack[-1]) if isinstance(stack, list) and stack else "",
        attempt=text.int("atm"),
        at=text.time("hf:fin") or text.time("hf:upd"),
        worker=text.str("hf:wrk"),
    )


def progress(wire: bytes | None, at: datetime) -> Progress | None:
    """Read BullMQ's progress: a number, or anything else as a message."""
    if wire is None:
        return None
    value = Reader({"progress": wire}).json("progress")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Progress(max(0, min(100, int(value))), "", at)
    if isinstance(value, dict) and isinstance(value.get("percent"), int):
        return Progress(max(0, min(100, value["percent"])), str(value.get("message", "")), at)
    return Progress(0, wire.decode("utf-8", "replace")[:1000], at)
