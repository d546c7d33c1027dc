"""Jobs to rows and back. Most jobs share their options, so those are read once and kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.job import (
    CancelRequest,
    DedupeKey,
    DependencyKind,
    Encoding,
    Event,
    Failure,
    Job,
    Lease,
    LogLine,
    Progress,
    State,
    Transition,
)
from holdfast.policy import Backoff
from holdfast.store._shapes import EventKind, JobEvent
from holdfast.store.sqlite.sql import statement

Key = bytes | str
Row = tuple[Any, ...]  # sqlite3 knows no column types

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PROGRESS = "progress"
STATES = {state.value: state for state in State}
EVENTS = {event.value: event for event in Event}
_MICROSECOND = timedelta(microseconds=1)

_encode = msgspec.json.Encoder().encode
_progress = msgspec.json.Decoder(Progress).decode
_failure = msgspec.json.Decoder(Failure).decode
_cancel = msgspec.json.Decoder(CancelRequest).decode
_texts = msgspec.json.Decoder(dict[str, str]).decode


class Options(msgspec.Struct, frozen=True, array_like=True):
    """The fields fixed at submission that are the same for many jobs."""

    encoding: Encoding
    profile: str
    timeout: timedelta
    lease_ttl: timedelta
    lifetime: timedelta
    backoff: Backoff
    retry_timeouts: bool
    callback_url: str


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields fixed at submission that few jobs use."""

    dedupe: DedupeKey | None = None
    depends_on: tuple[str, ...] = ()
    depth: int = 0


_NOTHING_EXTRA = Extra()
_extra = msgspec.json.Decoder(Extra).decode
_options = msgspec.json.Decoder(Options).decode


@lru_cache(4096)
def _encode_options(*fields: object) -> bytes:
    return _encode(Options(*fields))  # type: ignore[arg-type]  # fields of a job, in order


@lru_cache(4096)
def micros(moment: datetime) -> int:
    """Return a time as the file keeps it."""
    return (moment - EPOCH) // _MICROSECOND


@lru_cache(4096)
def moment(instant: int) -> datetime:
    """Return a time as it was before it was kept."""
    return EPOCH + timedelta(microseconds=instant)


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def _moment(instant: int | None) -> datetime | None:
    return None if instant is None else moment(instant)


def key_of(job_id: str) -> Key:
    """Return an id as the file keeps it: a UUID in 16 bytes, anything else as it is."""
    if len(job_id) != 36 or job_id[8::5][:4] != "----" or job_id.lower() != job_id:
        return job_id
    digits = job_id.replace("-", "")
    if len(digits) != 32:
        return job_id
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        return job_id
    return key if len(key) == 16 else job_id  # fromhex skips blanks


def id_of(key: Key) -> str:
    """Return the id that was kept as this key."""
    if isinstance(key, str):
        return key
    text = key.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def job_row(job: Job, seq: int, moved: int, *, ripe: bool, lift_at: int | None) -> Row:
    """Return the parameters of add_job.sql."""
    return (
        seq,
        key_of(job.id),
        job.queue,
        job.type,
        micros(job.created_at),
        micros_of_span(job.lease_ttl),
        job.limit_key or None,
        ripe,
        _encode(job.progress) if job.progress else None,
        *moving_part(job, moved, lift_at),
    )


def moving_part(job: Job, moved: int, lift_at: int | None) -> Row:
    """Return what a swap may change, in the order of add_job.sql and swap.sql."""
    lease, failure = job.lease, job.failure
    return (
        job.state._value_,
        int(job.priority),
        moved,
        lift_at,
        job.revision,
        job.attempt,
        job.max_attempts,
        job.generation,
        job.held,
        micros(job.updated_at),
        micros(job.expires_at),
        _micros(job.due_at),
        _micros(job.scheduled_at),
        _micros(job.started_at),
        _micros(job.finished_at),
        *(_NO_LEASE if lease is None else _lease_part(lease)),
        _encode(job.cancel) if job.cancel else None,
        *(_NO_FAILURE if failure is None else _failure_part(failure)),
        job.result,
    )


def settled_part(job: Job) -> Row:
    """Return what changes when a job ends with nothing but its result, as settle.sql takes it."""
    assert job.finished_at is not None
    assert job.lease is not None
    return (
        job.state._value_,
        job.revision,
        micros(job.updated_at),
        micros(job.finished_at),
        _micros(job.lease.until),
        job.result,
    )


_NO_LEASE: Row = (None, None, None, None)
_NO_FAILURE: Row = (None, None, None, None)


def _lease_part(lease: Lease) -> Row:
    return lease.version, _micros(lease.until), lease.token, lease.worker


def _failure_part(failure: Failure) -> Row:
    return _micros(failure.at), failure.category._value_, failure.code, _encode(failure)


def body_row(job: Job, seq: int, depends_on: tuple[str, ...]) -> Row:
    """Return the parameters of add_body.sql."""
    options = _encode_options(
        job.encoding,
        job.profile,
        job.timeout,
        job.lease_ttl,
        job.lifetime,
        job.backoff,
        job.retry_timeouts,
        job.callback_url,
    )
    extra = None
    if job.dedupe or depends_on or job.depth:
        extra = _encode(Extra(job.dedupe, depends_on, job.depth))
    return (
        seq,
        job.dependency_kind._value_,
        key_of(job.spawned_by) if job.spawned_by else None,
        job.correlation_id or None,
        _encode(job.tags) if job.tags else None,
        options,
        extra,
        job.payload,
    )


def journal_row(number: int, seq: int, previous: int | None, edge: Transition) -> Row:
    """Return the parameters of journal.sql for a transition."""
    return (
        number,
        seq,
        previous,
        edge.event._value_,
        None if edge.from_state is None else edge.from_state._value_,
        edge.to_state._value_,
        micros(edge.at),
        edge.reason,
        edge.attempt,
        edge.lease_version,
        edge.worker,
        None if edge.failure is None else _encode(edge.failure),
    )


def progress_row(number: int, seq: int, progress: Progress) -> Row:
    """Return the parameters of journal.sql for a progress event."""
    told = _encode(progress)
    return (number, seq, None, PROGRESS, None, None, micros(progress.at), "", 0, 0, "", told)


def log_row(seq: int, line: LogLine) -> Row:
    """Return the parameters of add_log.sql."""
    fields = _encode(line.fields) if line.fields else None
    return (seq, micros(line.at), line.level, line.message, line.attempt, fields)


def encoded(value: Progress | Mapping[str, str]) -> bytes:
    """Return a small value as the file keeps it."""
    return _encode(value)


def micros_of_span(span: timedelta) -> int:
    """Return a span as the file keeps it."""
    return span // _MICROSECOND


def by_key(connection: sqlite3.Connection, name: str, keys: Sequence[Key]) -> Iterator[Row]:
    """Run a statement that looks jobs up by id, which it returns first, for all these at once."""
    packed = b"".join(key for key in keys if isinstance(key, bytes))
    yield from connection.execute(statement(name), (packed, None))
    for key in keys:
        if isinstance(key, str):
            yield from connection.execute(statement(name), (b"", key))


def read_jobs(connection: sqlite3.Connection, seqs: Sequence[int]) -> list[Job]:
    """Return the jobs with these numbers, in this order; those that are gone are left out."""
    if not seqs:
        return []
    found = {
        row[0]: job_of(row)
        for row in connection.execute(statement("read"), (msgspec.json.encode(seqs).decode(),))
    }
    return [found[seq] for seq in seqs if seq in found]


def job_of(row: Row) -> Job:
    """Make a job of a row of read.sql."""
    # fmt: off
    (
        _, key, type_, queue, state, revision, priority, max_attempts, attempt, generation, held,
        created_at, updated_at, due_at, scheduled_at, started_at, finished_at, expires_at,
        token, lease_version, worker, lease_until, result, options, payload, any_rare,
        cancel, failure, progress, checkpoint, limit_key,
        kind, spawner, correlation, tags, extra,
    ) = row
    # fmt: on
    job = replace(
        _template(options),
        id=id_of(key),
        type=type_,
        queue=queue,
        payload=payload,
        created_at=moment(created_at),
        state=STATES[state],
        revision=revision,
        priority=priority,
        max_attempts=max_attempts,
        attempt=attempt,
        updated_at=moment(updated_at),
        scheduled_at=None if scheduled_at is None else moment(scheduled_at),
        started_at=None if started_at is None else moment(started_at),
        finished_at=None if finished_at is None else moment(finished_at),
        expires_at=moment(expires_at),
        lease=None if token is None else Lease(token, lease_version, worker, _moment(lease_until)),
        result=result,
    )
    if not (due_at or held or generation > 1 or any_rare):
        return job
    rare = _NOTHING_EXTRA if extra is None else _extra(extra)
    return replace(
        job,
        due_at=_moment(due_at),
        held=held == 1,
        generation=generation,
        cancel=cancel_of(cancel),
        failure=None if failure is None else _failure(failure),
        progress=None if progress is None else _progress(progress),
        checkpoint=checkpoint,
        limit_key=limit_key or "",
        dependency_kind=_KINDS[kind],
        spawned_by="" if spawner is None else id_of(spawner),
        correlation_id=correlation or "",
        tags={} if tags is None else _texts(tags),
        dedupe=rare.dedupe,
        depends_on=rare.depends_on,
        depth=rare.depth,
    )


@lru_cache(4096)
def _template(options: bytes) -> Job:
    """A job with these options and nothing rare; the rest of it is replaced."""
    shared = _options(options)
    return Job(
        id="",
        type="",
        queue="",
        payload=b"",
        created_at=EPOCH,
        updated_at=EPOCH,
        expires_at=EPOCH,
        max_attempts=1,
        encoding=shared.encoding,
        profile=shared.profile,
        timeout=shared.timeout,
        lease_ttl=shared.lease_ttl,
        lifetime=shared.lifetime,
        backoff=shared.backoff,
        retry_timeouts=shared.retry_timeouts,
        callback_url=shared.callback_url,
    )


_KINDS = {kind.value: kind for kind in DependencyKind}


def transition_of(row: Row) -> Transition:
    """Make a transition of the last nine columns of history.sql or events.sql."""
    event, before, after, at, reason, attempt, version, worker, detail = row
    return Transition(
        event=EVENTS[event],
        from_state=None if before is None else STATES[before],
        to_state=STATES[after],
        at=moment(at),
        reason=reason,
        attempt=attempt,
        lease_version=version,
        worker=worker,
        failure=None if detail is None else _failure(detail),
    )


def event_of(row: Row) -> JobEvent:
    """Make an event of a row of events.sql."""
    number, key, type_, queue = row[:4]
    rest = row[4:]
    told = rest[0] == PROGRESS
    return JobEvent(
        cursor=str(number),
        job_id=id_of(key),
        type=type_,
        queue=queue,
        kind=EventKind.PROGRESS if told else EventKind.TRANSITION,
        at=moment(rest[3]),
        transition=None if told else transition_of(rest),
        progress=_progress(rest[8]) if told else None,
    )


def log_lines(rows: Iterable[Row]) -> list[LogLine]:
    """Make log lines of the rows of logs.sql."""
    return [
        LogLine(moment(at), level, message, attempt, {} if fields is None else _texts(fields))
        for at, level, message, attempt, fields in rows
    ]


def cancel_of(wish: bytes | None) -> CancelRequest | None:
    """Read a wish to cancel."""
    return None if wish is None else _cancel(wish)
