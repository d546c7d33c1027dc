"""Decodes rows to jobs and events. Most jobs share their options, so those are cached."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from holdfast.model.job import (
    CancelRequest,
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
from holdfast.model.policy import Backoff
from holdfast.store.damage import salvaged
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.encode import (
    EPOCH,
    NOTHING,
    PROGRESS,
    Key,
    Options,
    RareFields,
    Row,
    id_of,
    moment,
)
from holdfast.store.values import EventKind, JobEvent

STATES = {state.value: state for state in State}
EVENTS = {event.value: event for event in Event}
_KINDS = {kind.value: kind for kind in DependencyKind}
_NOTHING_RARE = RareFields()
_ANY_SIZE = 2**62
_progress = msgspec.json.Decoder(Progress).decode
_failure = msgspec.json.Decoder(Failure).decode
_cancel = msgspec.json.Decoder(CancelRequest).decode
_texts = msgspec.json.Decoder(dict[str, str]).decode
_rare = msgspec.json.Decoder(RareFields).decode
_options = msgspec.json.Decoder(Options).decode


def by_key(connection: sqlite3.Connection, name: str, keys: Sequence[Key]) -> Iterator[Row]:
    """Run a statement that looks jobs up by id, for all these ids; rows begin with the id."""
    packed = bytearray().join(key for key in keys if isinstance(key, bytes))
    yield from connection.execute(statement(name), (packed, NOTHING))
    for key in keys:
        if isinstance(key, str):
            yield from connection.execute(statement(name), (bytearray(), key))


def read_jobs(
    connection: sqlite3.Connection, seqs: Sequence[int], most_bytes: int | None = None
) -> list[Job]:
    """Return the jobs with these ``seq``, in this order, without those that do not exist.

    Contents larger than ``most_bytes`` are not read.
    """
    if not seqs:
        return []
    found = {
        row[0]: _readable_job(row)
        for row in connection.execute(statement("read"), _array_and_most(seqs, most_bytes))
    }
    return [found[seq] for seq in seqs if seq in found]


def large_results(
    connection: sqlite3.Connection, seqs: Sequence[int], most_bytes: int | None
) -> dict[str, int]:
    """Return the sizes of results larger than ``most_bytes``, by id."""
    if most_bytes is None or not seqs:
        return {}
    rows = connection.execute(statement("large_results"), _array_and_most(seqs, most_bytes))
    return {id_of(key): size for key, size in rows}


def _array_and_most(seqs: Sequence[int], most_bytes: int | None) -> tuple[str, int]:
    return msgspec.json.encode(seqs).decode(), _ANY_SIZE if most_bytes is None else most_bytes


def read_claimed(
    connection: sqlite3.Connection, seqs: Sequence[int], *, token: str, worker: str, now: datetime
) -> list[Job]:
    """Return jobs that were just claimed, in this order: ``read_jobs`` at half the cost.

    Jobs of one claim mostly differ only in id, payload and times.
    """
    found: dict[int, Job] = {}
    rare: list[int] = []
    alike: dict[Row, Job] = {}
    rows = connection.execute(statement("read_claimed"), (msgspec.json.encode(seqs).decode(),))
    for (
        seq,
        key,
        payload,
        created_at,
        scheduled_at,
        expires_at,
        *shared,
        extra,
        is_rare,
    ) in rows.fetchall():
        if is_rare:
            rare.append(seq)
            continue
        kind = tuple(shared)
        try:
            plain = None
            if extra is not None:
                fixed = _rare(extra)
                if fixed.dedupe or fixed.depends_on or fixed.depth:
                    rare.append(seq)
                    continue
                plain = fixed.plain
            job = alike.get(kind)
            if job is None:
                job = alike[kind] = _claimed(kind, token, worker, now)
            found[seq] = replace(
                job,
                id=id_of(key),
                payload=payload,
                created_at=moment(created_at),
                scheduled_at=_moment(scheduled_at),
                expires_at=moment(expires_at),
                extra=plain,
            )
        except Exception:  # noqa: BLE001  # a damaged row must not keep the others from their worker
            rare.append(seq)
    found.update(zip(rare, read_jobs(connection, rare), strict=True))
    return [found[seq] for seq in seqs]


def _claimed(kind: Row, token: str, worker: str, now: datetime) -> Job:
    """Return a claimed job without id, payload and times."""
    options, type_, queue, revision, priority, max_attempts, attempt, version, until = kind
    return replace(
        _template(options),
        type=type_,
        queue=queue,
        state=State.RUNNING,
        revision=revision,
        priority=priority,
        max_attempts=max_attempts,
        attempt=attempt,
        updated_at=now,
        started_at=now,
        lease=Lease(token, version, worker, moment(until)),
    )


def _readable_job(row: Row) -> Job:
    """Return the job of a row of read.sql, as a damaged one when it cannot be read."""
    try:
        return job_of(row)
    except Exception as error:  # noqa: BLE001  # whatever a program wrote into the file
        return salvaged(row, _VALID, job_of, error)


def job_of(row: Row) -> Job:
    """Return the job of a row of read.sql."""
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
        lease=None
        if lease_version is None
        else Lease(token, lease_version, worker, _moment(lease_until)),
        result=result,
    )
    if not (due_at or held or generation > 1 or any_rare):
        return job
    rare = _NOTHING_RARE if extra is None else _rare(extra)
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
        extra=rare.plain,
    )


@lru_cache(4096)
def _template(options: bytes) -> Job:
    """Return a job with these options; the caller replaces the rest."""
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
        retry_crashes=shared.retry_crashes,
    )


_DEFAULT_OPTIONS = msgspec.json.encode(
    Options(
        Encoding.JSON,
        "standard",
        timedelta(minutes=30),
        timedelta(seconds=30),
        timedelta(days=7),
        Backoff(),
        True,
        "",
    )
)
# fmt: off
_VALID: Row = (
    0, "", "", "", "FAILED", 0, 0, 1, 0, 1, 0,
    0, 0, None, None, None, None, 0,
    "", 0, "", None, None, _DEFAULT_OPTIONS, b"null", 1,
    None, None, None, None, None,
    "AFTER", None, None, None, None,
)
# fmt: on
"""A row of read.sql that stands in for what is damaged in another."""


def transition_of(row: Row) -> Transition:
    """Return the transition in the last columns of a row of history.sql or events.sql."""
    event, before, after, at, reason, attempt, version, worker, detail = row
    return Transition(
        event=EVENTS[event],
        from_state=STATES[before] if before else None,
        to_state=STATES[after],
        at=moment(at),
        reason=reason,
        attempt=attempt,
        lease_version=version,
        worker=worker,
        failure=None if detail is None else _failure(detail),
    )


def event_of(row: Row) -> JobEvent:
    """Return the event of a row of events.sql."""
    number, key, type_, queue = row[:4]
    rest = row[4:]
    is_progress = rest[0] == PROGRESS
    return JobEvent(
        cursor=str(number),
        job_id=id_of(key),
        type=type_,
        queue=queue,
        kind=EventKind.PROGRESS if is_progress else EventKind.TRANSITION,
        at=moment(rest[3]),
        transition=None if is_progress else transition_of(rest),
        progress=_progress(rest[8]) if is_progress else None,
    )


def log_line(row: Row) -> LogLine:
    """Return the log line in the last columns of a row of logs.sql."""
    at, level, message, attempt, fields = row
    return LogLine(moment(at), level, message, attempt, {} if fields is None else _texts(fields))


def cancel_of(request: bytes | None) -> CancelRequest | None:
    """Decode a cancel request."""
    return None if request is None else _cancel(request)


def _moment(instant: int | None) -> datetime | None:
    return None if instant is None else moment(instant)
