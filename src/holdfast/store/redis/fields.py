"""The fields of a job's hash, typed, and how single values are written and read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.model.deduplication import Deduplication
from holdfast.model.job import (
    CancelRequest,
    DedupeKey,
    DependencyKind,
    Encoding,
    Event,
    Failure,
    Lease,
    Priority,
    Progress,
    State,
)
from holdfast.model.policy import Backoff
from holdfast.model.removal import Removal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)
MAX_NUMBER = 10**9


class Fixed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``hf:job``: what BullMQ has no field for, as submitted."""

    profile: str
    max_attempts: int
    timeout: timedelta
    lease_ttl: timedelta
    lifetime: timedelta
    backoff: Backoff
    encoding: Encoding = Encoding.JSON
    retry_timeouts: bool = True
    retry_crashes: bool = True
    remove_on_complete: Removal | None = None
    remove_on_fail: Removal | None = None
    deduplication: Deduplication | None = None
    tags: Mapping[str, str] = {}
    correlation_id: str = ""
    callback_url: str = ""
    dedupe: DedupeKey | None = None
    dependency_kind: DependencyKind = DependencyKind.AFTER
    depth: int = 0
    spawned_by: str = ""
    extra: bytes | None = None


class Rest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``hf:rest``: what changes rarely and no script reads; absent until the first change."""

    max_attempts: int
    kind: DependencyKind | None = None
    """How the job waits, once that has changed."""
    generation: int = 1
    cancel: CancelRequest | None = None
    failure: Failure | None = None


class Edge(msgspec.Struct, frozen=True, array_like=True):
    """A transition as stored; scripts write the same list of values."""

    event: Event
    from_state: State | None
    to_state: State
    at: int
    reason: str
    attempt: int
    lease_version: int
    worker: str
    failure: Failure | None


class EventEdge(Edge, frozen=True, array_like=True):
    """A transition in the event stream, with the result of a job that is deleted at its end."""

    result: str | None = None


class Row(msgspec.Struct, frozen=True, gc=False):
    """The fields of a job's hash in the order in which scripts return them."""

    name: bytes
    priority: bytes | None
    started: bytes | None
    made: bytes | None
    deferred_failure: bytes | None
    deduplication: bytes | None
    parent_key: bytes | None
    ttl: bytes | None
    limit_key: bytes | None
    now: bytes
    token: bytes | None
    has_dependents: bytes | None
    worker: bytes | None
    data: bytes | None
    progress: bytes | None
    fixed: bytes | None
    rest: bytes | None
    depends_on: bytes | None
    own_progress: bytes | None
    checkpoint: bytes | None
    options: bytes | None = None
    returnvalue: bytes | None = None
    failed_reason: bytes | None = None
    stacktrace: bytes | None = None
    scheduler: bytes | None = None
    own_result: bytes | None = None


class Now(msgspec.Struct, frozen=True, gc=False):
    """``hf:now``: what scripts keep up to date, packed into one field."""

    state: bytes
    revision: bytes
    updated_at: bytes
    due_at: bytes
    scheduled_at: bytes
    started_at: bytes
    finished_at: bytes
    expires_at: bytes
    until: bytes
    number: bytes
    history: bytes
    starts_seen: bytes
    held: bytes
    stalls: bytes
    foreign_failure: bytes
    created_at: bytes


_rest = msgspec.json.Decoder(Rest)
_progress = msgspec.json.Decoder(Progress)
_encode = msgspec.json.Encoder().encode
_STATES = {state.value.encode(): state for state in State}

# Jobs of one batch share most of their instants, so the same few are converted many times.
_cached = functools.lru_cache(4096)


@_cached
def micros(moment: datetime) -> int:
    """Return an instant as microseconds since the epoch."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def instant(value: int) -> datetime:
    """Return the instant so many microseconds after the epoch."""
    return EPOCH + timedelta(microseconds=value)


@_cached
def optional_micros(moment: datetime | None) -> str:
    """Return an instant as a field value, empty when there is none."""
    return "" if moment is None else str(micros(moment))


def level(priority: int) -> int:
    """Return the level of a BullMQ priority number; numbers above 4 are BULK."""
    return max(0, min(int(Priority.BULK), priority))


def read_now(row: Row) -> Now:
    """Unpack ``hf:now``."""
    return Now(*row.now.split(b"|"))


def scope(namespace: str | None) -> str:
    """Return a namespace as scripts take it: ``*`` stands for every one."""
    return "*" if namespace is None else namespace


def text(value: bytes | None) -> str:
    """Read a field as text, empty when absent."""
    return value.decode("utf-8", "replace") if value else ""


def number(value: bytes | None) -> int:
    """Read a field as a number from 0 to a billion; 0 when absent or invalid, as scripts do."""
    try:
        found = int(value) if value else 0
    except ValueError:
        return 0
    return found if 0 <= found <= MAX_NUMBER else 0


@_cached
def at(value: bytes) -> datetime:
    """Read a field of microseconds as an instant."""
    return instant(int(value))


def time(value: bytes | None) -> datetime | None:
    """Read a field of microseconds as an instant that may be missing."""
    return at(value) if value else None


def parsed(data: bytes) -> object:
    """Return foreign JSON as a value, None when it is invalid."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def pairs(answer: object) -> dict[bytes, bytes]:
    """Return the answer to HGETALL as a dict: a flat list, or a dict from a cluster."""
    if isinstance(answer, dict):
        return answer
    assert isinstance(answer, list)
    return dict(zip(answer[::2], answer[1::2], strict=True))


@functools.lru_cache(1024)
def read_rest(data: bytes) -> Rest:
    """Read ``hf:rest``."""
    return _rest.decode(data)


def read_cancel(data: bytes | None) -> CancelRequest | None:
    """Read the request to cancel from ``hf:rest``."""
    return read_rest(data).cancel if data else None


def mutable(row: Row, now: Now) -> dict[str, object]:
    """Return the fields of ``Job`` that scripts keep up to date for every job."""
    lease = None
    if version := number(row.started):
        lease = Lease(text(row.token), version, text(row.worker), time(now.until))
    state = _STATES[now.state]
    return {
        "state": state,
        "revision": int(now.revision),
        "priority": level(number(row.priority)),
        "attempt": number(row.made) + (state is State.RUNNING),
        "updated_at": at(now.updated_at),
        "due_at": time(now.due_at),
        "scheduled_at": time(now.scheduled_at),
        "started_at": time(now.started_at),
        "finished_at": time(now.finished_at),
        "expires_at": at(now.expires_at),
        "lease": lease,
        "progress": _latest_progress(row, now) if row.progress else None,
        "checkpoint": row.checkpoint,
    }


def progress_values(progress: Progress) -> tuple[str, str]:
    """Return progress as ``hf:pg`` and as Node reads it: a number, or one with a message."""
    shown = {"percent": progress.percent, "message": progress.message}
    wire = _encode(shown if progress.message else progress.percent)
    return _encode(progress).decode(), wire.decode()


def read_progress(data: bytes) -> Progress:
    """Read ``hf:pg``."""
    return _progress.decode(data)


def _latest_progress(row: Row, now: Now) -> Progress:
    """Return our progress, unless a BullMQ client has reported since."""
    wire = row.progress or b""
    if row.own_progress is not None:
        progress = read_progress(row.own_progress)
        if progress_values(progress)[1].encode() == wire:
            return progress
    return foreign_progress(wire, instant(int(now.updated_at)))


def foreign_progress(wire: bytes, at: datetime) -> Progress:
    """Read BullMQ's progress: a number, or anything else as a message."""
    value = parsed(wire)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Progress(max(0, min(100, int(value))), "", at)
    if isinstance(value, dict) and isinstance(value.get("percent"), int):
        return Progress(max(0, min(100, value["percent"])), str(value.get("message", "")), at)
    return Progress(0, wire.decode("utf-8", "replace")[:1000], at)
