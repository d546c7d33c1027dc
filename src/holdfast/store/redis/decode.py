"""Jobs, transitions and log lines read from what scripts return."""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.model.job import Encoding, Job, LogLine, Transition
from holdfast.store.damage import readable, salvaged
from holdfast.store.redis import bullmq
from holdfast.store.redis.fields import (
    EPOCH,
    EventEdge,
    Fixed,
    Rest,
    Row,
    at,
    instant,
    mutable,
    read_now,
    read_rest,
    text,
)
from holdfast.store.redis.settings import ForeignTerms

JobReply = tuple[bytes, bytes, list[bytes | None]]
"""A script's reply for a job: id, queue, the fields of its hash."""

ShortReply = tuple[bytes, bytes | None]
"""A reply for a job that equals the one before it except for these: id and data."""

SCHEDULER = Row.__struct_fields__.index("scheduler")

_VALID: tuple[bytes | None, ...] = (
    *(b"", *[None] * 8),
    *(b"FAILED|0|0|||||0||0|0|0||0||0", *[None] * 10),
)
"""The fields of a hash that stand in for what is damaged in another."""
_fixed = msgspec.json.Decoder(Fixed)
_edge = msgspec.json.Decoder(EventEdge)
_log_line = msgspec.json.Decoder(LogLine)
_ids = msgspec.json.Decoder(tuple[str, ...])


def read_job(reply: JobReply, terms: ForeignTerms) -> Job:
    """Read a job that holdfast or a BullMQ client made, as a damaged one if it is unreadable."""
    try:
        return _job(reply, terms)
    except Exception as error:  # noqa: BLE001  # whatever a client of the server wrote
        return _salvaged(reply, terms, error)


def _salvaged(reply: JobReply, terms: ForeignTerms, error: Exception) -> Job:
    job_id, queue, values = reply
    names = text(job_id).encode(), text(queue).encode()
    valid = [*_VALID, *[None] * (len(values) - len(_VALID))]

    def read(row: Sequence[Any]) -> Job:
        return _job((*names, list(row)), terms)

    return salvaged(values, valid, read, error)


def _job(reply: JobReply, terms: ForeignTerms) -> Job:
    job_id, queue, row = _parts(reply)
    if row.fixed is None:
        return bullmq.read_job(job_id, queue, row, terms)
    return _own_job(job_id, queue, row)


def read_fixed(reply: JobReply) -> Fixed | None:
    """Return what a job of holdfast was submitted with; None for a job of a BullMQ client."""
    _, _, row = _parts(reply)
    return None if row.fixed is None else _fixed.decode(row.fixed)


def scheduled(reply: JobReply) -> tuple[str, str, str, bytes] | None:
    """Return queue, scheduler, BullMQ id and options of a job that a BullMQ scheduler made."""
    if len(reply[2]) <= SCHEDULER:
        return None
    job_id, queue, row = _parts(reply)
    if row.scheduler is None or row.options is None:
        return None
    return queue, text(row.scheduler), job_id.removeprefix(f"{queue}:"), row.options


def _parts(reply: JobReply) -> tuple[str, str, Row]:
    job_id, queue, values = reply
    return job_id.decode(), queue.decode(), Row(*values)  # type: ignore[arg-type]  # by position


def _own_job(job_id: str, queue: str, row: Row) -> Job:
    assert row.fixed is not None
    shared = _shared(row.name, queue, row.fixed, row.rest or b"", row.limit_key, row.depends_on)
    now = read_now(row)
    values = mutable(row, now)
    values["id"] = job_id
    values["payload"] = payload(row.data or b"", shared.encoding)
    values["created_at"] = at(now.created_at)
    values["held"] = now.held == b"1"
    if now.state == b"COMPLETED":
        values["failure"], values["result"] = None, _result(row)
    elif now.foreign_failure:
        values["failure"] = bullmq.failure(row, now)
    return replace(shared, **values)


@functools.lru_cache(1024)
def _shared(
    name: bytes,
    queue: str,
    fixed_data: bytes,
    rest_data: bytes,
    limit_key: bytes | None,
    depends_on: bytes | None,
) -> Job:
    """Return a job with everything that jobs of one kind have in common."""
    fixed = _fixed.decode(fixed_data)
    rest = read_rest(rest_data) if rest_data else Rest(max_attempts=fixed.max_attempts)
    return Job(
        id="",
        type=text(name),
        queue=queue,
        payload=b"",
        encoding=fixed.encoding,
        profile=fixed.profile,
        created_at=EPOCH,
        updated_at=EPOCH,
        expires_at=EPOCH,
        timeout=fixed.timeout,
        lease_ttl=fixed.lease_ttl,
        lifetime=fixed.lifetime,
        backoff=fixed.backoff,
        retry_timeouts=fixed.retry_timeouts,
        retry_crashes=fixed.retry_crashes,
        remove_on_complete=fixed.remove_on_complete,
        remove_on_fail=fixed.remove_on_fail,
        deduplication=fixed.deduplication,
        tags=fixed.tags,
        correlation_id=fixed.correlation_id,
        callback_url=fixed.callback_url,
        limit_key=text(limit_key),
        dedupe=fixed.dedupe,
        depends_on=_ids.decode(depends_on) if depends_on else (),
        dependency_kind=rest.kind or fixed.dependency_kind,
        depth=fixed.depth,
        spawned_by=fixed.spawned_by,
        extra=fixed.extra,
        max_attempts=rest.max_attempts,
        generation=rest.generation,
        cancel=rest.cancel,
        failure=rest.failure,
    )


def payload(data: bytes, encoding: Encoding) -> bytes:
    """Return BullMQ's data as the job's payload."""
    return data if encoding is Encoding.JSON else base64.b64decode(data[1:-1])


def _result(row: Row) -> bytes | None:
    if row.own_result is not None:
        return row.own_result
    return None if row.returnvalue == b"null" else row.returnvalue


def read_edges(data: bytes) -> list[Transition]:
    """Read the transitions that one call wrote, one per line."""
    return list(readable(data.split(b"\n"), read_edge))


def read_edge(data: bytes) -> Transition:
    """Read a transition."""
    return read_event(data)[0]


def read_event(data: bytes) -> tuple[Transition, str | None]:
    """Read a transition, with the result of a job that is deleted when it completes.

    A BullMQ client's text in it may be invalid UTF-8.
    """
    try:
        edge = _edge.decode(data)
    except UnicodeDecodeError:
        edge = _edge.decode(data.decode("utf-8", "replace"))
    transition = Transition(
        event=edge.event,
        from_state=edge.from_state,
        to_state=edge.to_state,
        at=instant(edge.at),
        reason=edge.reason,
        attempt=edge.attempt,
        lease_version=edge.lease_version,
        worker=edge.worker,
        failure=edge.failure,
    )
    return transition, edge.result


def read_log_row(row: bytes) -> LogLine:
    """Read a row of a job's log; a BullMQ client's row is a message without a time."""
    try:
        return _log_line.decode(row)
    except msgspec.MsgspecError:
        return LogLine(EPOCH, "info", row.decode("utf-8", "replace"))
