"""Encodes jobs, transitions and single values as rows of the file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.model.job import (
    DedupeKey,
    Encoding,
    Failure,
    Job,
    Lease,
    LogLine,
    Progress,
    Transition,
)
from holdfast.model.payload import clean
from holdfast.model.policy import Backoff
from holdfast.store.namespaces import LAST, queue_range

Key = bytes | str
Row = tuple[Any, ...]  # sqlite3 knows no column types
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
NOTHING = ""
"""Bound instead of no text or blob: the sqlite3 module takes ten times longer to bind None."""
NEVER = -1
"""Bound instead of no time or number; statements turn both into NULL."""


@lru_cache(4096)
def micros(moment: datetime) -> int:
    """Return a time as stored: microseconds since 1970."""
    return (moment - EPOCH) // _MICROSECOND


@lru_cache(4096)
def moment(instant: int) -> datetime:
    """Return a stored time as a datetime."""
    return EPOCH + timedelta(microseconds=instant)


def micros_of_span(span: timedelta) -> int:
    """Return a span as stored: microseconds."""
    return span // _MICROSECOND


def bounds(namespace: str | None) -> dict[str, object]:
    """Return the bounds of the queue names of a namespace."""
    within = queue_range(namespace)
    return {"low_name": within.low, "high_name": within.high, "plain_names": within.plain}


def key_of(job_id: str) -> Key:
    """Return an id as stored: a UUID as 16 bytes, any other as text.

    Text that cannot be stored becomes text that no job has.
    """
    digits = job_id.replace("-", "")
    if len(digits) != 32 or len(job_id) != 36 or job_id[8::5][:4] != "----":
        return clean(job_id)
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        return clean(job_id)
    return key if key.hex() == digits else clean(job_id)  # fromhex also accepts capitals and blanks


def key_ranges(prefix: str) -> tuple[tuple[Key, Key], tuple[Key, Key]]:
    """Return where the keys of the ids with a prefix are, from and before: bytes, then text."""
    text: tuple[Key, Key] = (clean(prefix), clean(prefix) + LAST)
    digits = prefix.replace("-", "")
    first = digits.ljust(32, "0")
    low = key_of(f"{first[:8]}-{first[8:12]}-{first[12:16]}-{first[16:20]}-{first[20:]}")
    if not isinstance(low, bytes) or not id_of(low).startswith(prefix):
        return (b"", b""), text
    return (low, bytes.fromhex(digits.ljust(32, "f")) + b"\0"), text


def id_of(key: Key) -> str:
    """Return the id that is stored as this key."""
    if isinstance(key, str):
        return key
    return f"{key[:4].hex()}-{key[4:10].hex('-', 2)}-{key[10:].hex()}"


PROGRESS = "progress"
_encode = msgspec.json.Encoder().encode


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
    retry_crashes: bool = True


class RareFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields fixed at submission that few jobs use."""

    dedupe: DedupeKey | None = None
    depends_on: tuple[str, ...] = ()
    depth: int = 0
    plain: bytes | None = None


@lru_cache(4096)
def _encode_options(*fields: object) -> bytearray:
    return bytearray(_encode(Options(*fields)))  # type: ignore[arg-type]  # fields of a job, in order


def _micros_or_never(at: datetime | None) -> int:
    return NEVER if at is None else micros(at)


def _blob(value: bytes | None) -> bytearray | str:
    """Return bytes in the type that the sqlite3 module binds without looking for adapters."""
    return NOTHING if value is None else bytearray(value)


def job_row(job: Job, seq: int, moved: int, *, has_dependents: bool, lift_at: int | None) -> Row:
    """Return the parameters of add_job.sql: the fields of a job accepted just now."""
    created, scheduled = micros(job.created_at), job.scheduled_at
    return (
        seq,
        key_blob(job.id),
        job.queue,
        job.type,
        created,
        micros_of_span(job.lease_ttl),
        job.limit_key,
        has_dependents,
        job.state._value_,
        int(job.priority),
        moved,
        NEVER if lift_at is None else lift_at,
        job.revision,
        job.max_attempts,
        job.held,
        micros(job.expires_at),
        _micros_or_never(job.due_at),
        created if scheduled is job.created_at else _micros_or_never(scheduled),
    )


def key_blob(job_id: str) -> bytearray | str:
    """Return an id as bound."""
    key = key_of(job_id)
    return key if isinstance(key, str) else bytearray(key)


def past_row(job: Job, seq: int, moved: int, *, has_dependents: bool, lift_at: int | None) -> Row:
    """Return the parameters of adopt_job.sql: all fields of a job."""
    return (
        seq,
        key_blob(job.id),
        job.queue,
        job.type,
        micros(job.created_at),
        micros_of_span(job.lease_ttl),
        job.limit_key,
        int(has_dependents),
        _blob(_encode(job.progress) if job.progress else None),
        *moving_part(job, moved, lift_at),
    )


def moving_part(job: Job, moved: int, lift_at: int | None) -> Row:
    """Return the fields that a swap may change, in the order of adopt_job.sql and swap.sql."""
    lease, failure, cancel = job.lease, job.failure, job.cancel
    return (
        job.state._value_,
        int(job.priority),
        moved,
        NEVER if lift_at is None else lift_at,
        job.revision,
        job.attempt,
        job.max_attempts,
        job.generation,
        int(job.held),
        micros(job.updated_at),
        micros(job.expires_at),
        _micros_or_never(job.due_at),
        _micros_or_never(job.scheduled_at),
        _micros_or_never(job.started_at),
        _micros_or_never(job.finished_at),
        *(_NO_LEASE if lease is None else _lease_part(lease)),
        NOTHING if cancel is None else _blob(_encode(cancel)),
        *(_NO_FAILURE if failure is None else _failure_part(failure)),
        _blob(job.result),
    )


def settled_part(before: Job, after: Job) -> Row:
    """Return the parameters of settle.sql: what changes when a job ends with only its result."""
    lease, result = after.lease, after.result
    assert lease is not None
    return (
        after.state._value_,
        after.revision,
        micros(after.updated_at),
        _micros_or_never(after.finished_at),
        NEVER if lease.until is None else micros(lease.until),
        NOTHING if result is None else bytearray(result),
        before.revision,
        lease.token,
    )


_NO_LEASE: Row = (NEVER, NEVER, NOTHING, NOTHING)
_NO_FAILURE: Row = (NEVER, NOTHING, NOTHING, NOTHING)


def _lease_part(lease: Lease) -> Row:
    return lease.version, _micros_or_never(lease.until), lease.token, lease.worker


def _failure_part(failure: Failure) -> Row:
    at = _micros_or_never(failure.at)
    return at, failure.category._value_, failure.code, _blob(_encode(failure))


def options_blob(job: Job) -> bytearray:
    """Return the options of a job as bound."""
    return _encode_options(
        job.encoding,
        job.profile,
        job.timeout,
        job.lease_ttl,
        job.lifetime,
        job.backoff,
        job.retry_timeouts,
        job.callback_url,
        job.retry_crashes,
    )


def body_row(job: Job, seq: int, depends_on: tuple[str, ...]) -> Row:
    """Return the parameters of add_body.sql."""
    rare = None
    if job.dedupe or depends_on or job.depth or job.extra:
        rare = _encode(RareFields(job.dedupe, depends_on, job.depth, job.extra))
    return (
        seq,
        job.dependency_kind._value_,
        key_of(job.spawned_by),
        job.correlation_id,
        _blob(_encode(job.tags) if job.tags else None),
        options_blob(job),
        _blob(rare),
        bytearray(job.payload),
    )


def amended_body_row(job: Job, seq: int) -> Row:
    """Return the parameters of amend_body.sql."""
    tags = _blob(_encode(job.tags) if job.tags else None)
    return seq, job.correlation_id, tags, options_blob(job)


def journal_row(number: int, seq: int, previous: int, edge: Transition) -> Row:
    """Return the parameters of journal.sql for a transition."""
    return (
        number,
        seq,
        previous,
        edge.event._value_,
        NOTHING if edge.from_state is None else edge.from_state._value_,
        edge.to_state._value_,
        micros(edge.at),
        edge.reason,
        edge.attempt,
        edge.lease_version,
        edge.worker,
        NOTHING if edge.failure is None else _blob(_encode(edge.failure)),
    )


def progress_row(number: int, seq: int, progress: Progress) -> Row:
    """Return the parameters of journal.sql for a progress event."""
    data = _encode(progress)
    return (number, seq, NEVER, PROGRESS, NOTHING, NOTHING, micros(progress.at), "", 0, 0, "", data)


def log_row(seq: int, line: LogLine) -> Row:
    """Return the parameters of add_log.sql."""
    fields = _encode(line.fields) if line.fields else None
    return (seq, micros(line.at), line.level, line.message, line.attempt, fields)


def encoded(value: Progress | Mapping[str, str]) -> bytes:
    """Return a small value as stored."""
    return _encode(value)
