"""Jobs as BullMQ hashes: what goes where, and how it is read back.

BullMQ's own fields hold what BullMQ knows; ``hf:job`` the rest as it was submitted,
``hf:rest`` what changes rarely, once it did, and a few short fields what scripts must know.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from holdfast.model.job import (
    DedupeKey,
    DependencyKind,
    Encoding,
    Event,
    Failure,
    Job,
    LogLine,
    State,
    Transition,
)
from holdfast.model.policy import Backoff, BackoffKind
from holdfast.store.redis import bullmq
from holdfast.store.redis.fields import (
    EPOCH,
    MICROSECOND,
    Rest,
    Row,
    at,
    instant,
    maybe,
    micros,
    mutable,
    parsed,
    read_now,
    read_rest,
    text,
)

Fields = list[str | int | msgspec.Raw]
"""Names and values of a hash, flat, as a packed argument carries them."""

Image = tuple[bytes, bytes, list[bytes | None]]
"""A script's answer for a job: id, queue, the fields of its hash."""

Like = tuple[bytes, bytes | None]
"""A script's answer for a job that differs from the one before by this: id and data."""


class Fixed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What BullMQ has no place for, as it was submitted; ``hf:rest`` tells what changed since."""

    profile: str
    max_attempts: int
    timeout: timedelta
    lease_ttl: timedelta
    lifetime: timedelta
    backoff: Backoff
    encoding: Encoding = Encoding.JSON
    retry_timeouts: bool = True
    tags: Mapping[str, str] = {}
    correlation_id: str = ""
    callback_url: str = ""
    dedupe: DedupeKey | None = None
    dependency_kind: DependencyKind = DependencyKind.AFTER
    depth: int = 0
    spawned_by: str = ""


class Edge(msgspec.Struct, frozen=True, array_like=True):
    """A transition as it is kept; scripts write the same list of values."""

    event: Event
    from_state: State | None
    to_state: State
    at: int
    reason: str
    attempt: int
    lease_version: int
    worker: str
    failure: Failure | None


SCHEDULER = Row.__struct_fields__.index("scheduler")

_encode = msgspec.json.Encoder().encode
_fixed = msgspec.json.Decoder(Fixed)
_edge = msgspec.json.Decoder(Edge)
_line = msgspec.json.Decoder(LogLine)
_ids = msgspec.json.Decoder(tuple[str, ...])


def packed(data: bytes) -> msgspec.Raw:
    """Wrap bytes so that a packed argument carries them as a string: Lua knows no other kind."""
    return msgspec.Raw(b"\xdb" + len(data).to_bytes(4, "big") + data)


def _text(value: object) -> str:
    return _encode(value).decode()


def new_fields(job: Job) -> Fields:
    """Return the hash of a new job, flat."""
    own: Fields = ["data", packed_data(job), "opts", _text(_options(job))]
    return own + shared_fields(job)


def packed_data(job: Job) -> msgspec.Raw:
    """Return a job's payload as BullMQ's data."""
    return packed(_data(job))


def options_around_id(job: Job) -> tuple[str, str]:
    """Return BullMQ's options before and behind the job's id."""
    before, _, behind = _text(_options(job)).partition(_text(job.id))
    return f'{before}"', f'"{behind}'


def shared_fields(job: Job) -> Fields:
    """Return the fields of a new job's hash that do not tell it from its like, flat."""
    created = micros(job.created_at)
    wait = (micros(job.due_at) - created) // 1000 if job.due_at else 0
    fixed = Fixed(**{name: getattr(job, name) for name in Fixed.__struct_fields__})
    fields: Fields = [
        *("name", job.type),
        *("timestamp", created // 1000, "delay", max(0, wait), "priority", job.priority),
        *("hf:job", _text(fixed), "hf:ttl", job.lease_ttl // MICROSECOND),
    ]
    if (rest := _rest_of(job)) != Rest(max_attempts=job.max_attempts):
        fields += ["hf:rest", _text(rest)]
    if job.limit_key:
        fields += ["hf:limit", job.limit_key]
    return fields


def now_values(job: Job) -> list[str]:
    """Return what scripts keep up to date, in the order in which it is packed."""
    return [
        job.state.value,
        str(job.revision),
        maybe(job.updated_at),
        maybe(job.due_at),
        maybe(job.scheduled_at),
        maybe(job.started_at),
        maybe(job.finished_at),
        maybe(job.expires_at),
        maybe(job.lease.until) if job.lease else "",
    ]


def rest_value(job: Job, before: Job | None = None) -> str | None:
    """Return the blob of what changes rarely; None when it did not."""
    if before is not None and not rest_changed(before, job):
        return None
    return _text(_rest_of(job))


def rest_changed(before: Job, after: Job) -> bool:
    """Whether what changes rarely did."""
    return (
        before.max_attempts != after.max_attempts
        or before.generation != after.generation
        or before.cancel != after.cancel
        or before.failure != after.failure
    )


def _rest_of(job: Job) -> Rest:
    return Rest(
        max_attempts=job.max_attempts,
        generation=job.generation,
        cancel=job.cancel,
        failure=job.failure,
    )


def edge_values(edge: Transition) -> list[object]:
    """Return a transition as scripts take it: event, from, to, microseconds, record."""
    moment = micros(edge.at)
    source = edge.from_state.value if edge.from_state else False
    return [edge.event.value, source, edge.to_state.value, moment, edge_text(edge, moment)]


def edge_text(edge: Transition, moment: int) -> str:
    """Return a transition as it is kept."""
    kept = Edge(
        edge.event,
        edge.from_state,
        edge.to_state,
        moment,
        edge.reason,
        edge.attempt,
        edge.lease_version,
        edge.worker,
        edge.failure,
    )
    return _text(kept)


def read_story(data: bytes) -> list[Transition]:
    """Read the transitions of one call back: a line for each."""
    return [read_edge(line) for line in data.split(b"\n")]


def read_edge(data: bytes) -> Transition:
    """Read a transition back; what a BullMQ client said in it may be no text."""
    try:
        edge = _edge.decode(data)
    except UnicodeDecodeError:
        edge = _edge.decode(data.decode("utf-8", "replace"))
    return Transition(
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


def log_row(line: LogLine) -> str:
    """Return a log line as a row of BullMQ's log list."""
    return _text(line)


def read_log_row(row: bytes) -> LogLine:
    """Read a row of a job's log; a row of a BullMQ client is a message without a time."""
    try:
        return _line.decode(row)
    except msgspec.MsgspecError:
        return LogLine(EPOCH, "info", row.decode("utf-8", "replace"))


def result_values(result: bytes | None) -> tuple[str, Fields]:
    """Return a result as BullMQ's returnvalue, which must be JSON, and what that cannot tell."""
    if result is None:
        return "null", []
    if result != b"null" and is_json(result):
        return result.decode(), []
    return "null", ["hf:res", packed(result)]


def is_json(data: bytes) -> bool:
    """Whether Node can parse it."""
    return data == b"null" or parsed(data) is not None


def scheduled(image: Image) -> tuple[str, str, str, bytes] | None:
    """Return queue, scheduler, wire id and options of a job that a BullMQ scheduler made."""
    if len(image[2]) <= SCHEDULER:
        return None
    job_id, queue, row = _parts(image)
    if row.scheduler is None or row.options is None:
        return None
    return queue, text(row.scheduler), job_id.removeprefix(f"{queue}:"), row.options


def read_job(image: Image, unknown_backoff: str) -> Job:
    """Read a job from a script's answer, ours or a BullMQ client's."""
    job_id, queue, row = _parts(image)
    if row.fixed is None:
        return bullmq.read_job(job_id, queue, row, unknown_backoff)
    return _own_job(job_id, queue, row)


def _parts(image: Image) -> tuple[str, str, Row]:
    job_id, queue, values = image
    return job_id.decode(), queue.decode(), Row(*values)  # type: ignore[arg-type]  # by position


@functools.lru_cache(1024)
def _like(
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
        tags=fixed.tags,
        correlation_id=fixed.correlation_id,
        callback_url=fixed.callback_url,
        limit_key=text(limit_key),
        dedupe=fixed.dedupe,
        depends_on=_ids.decode(depends_on) if depends_on else (),
        dependency_kind=fixed.dependency_kind,
        depth=fixed.depth,
        spawned_by=fixed.spawned_by,
        max_attempts=rest.max_attempts,
        generation=rest.generation,
        cancel=rest.cancel,
        failure=rest.failure,
    )


def _own_job(job_id: str, queue: str, row: Row) -> Job:
    assert row.fixed is not None
    like = _like(row.name, queue, row.fixed, row.rest or b"", row.limit_key, row.depends_on)
    now = read_now(row)
    values = mutable(row, now)
    values["id"] = job_id
    values["payload"] = payload(row.data or b"", like.encoding)
    values["created_at"] = at(now.created_at)
    values["held"] = now.held == b"1"
    if now.state == b"COMPLETED":
        values["failure"], values["result"] = None, _result(row)
    elif now.foreign_failure:
        values["failure"] = bullmq.failure(row, now)
    return replace(like, **values)


def _result(row: Row) -> bytes | None:
    if row.own_result is not None:
        return row.own_result
    return None if row.returnvalue == b"null" else row.returnvalue


def _data(job: Job) -> bytes:
    """Node parses every payload: bytes travel as a JSON string."""
    if job.encoding is Encoding.JSON:
        return job.payload
    return b'"%s"' % base64.b64encode(job.payload)


def payload(data: bytes, encoding: Encoding) -> bytes:
    """Return BullMQ's data as the job's payload."""
    return data if encoding is Encoding.JSON else base64.b64decode(data[1:-1])


_NODE_BACKOFF = {BackoffKind.CONSTANT: "fixed", BackoffKind.LINEAR: "fixed"}


def _options(job: Job) -> dict[str, object]:
    """What a BullMQ worker needs to know to run and retry the job."""
    backoff: dict[str, object] = {
        "type": _NODE_BACKOFF.get(job.backoff.strategy, "exponential"),
        "delay": job.backoff.initial_delay // timedelta(milliseconds=1),
    }
    if job.backoff.strategy is BackoffKind.FULL_JITTER:
        backoff["jitter"] = 1
    return {
        "attempts": job.max_attempts,
        "backoff": backoff,
        "priority": job.priority,
        "jobId": job.id,
        "kl": 1000,
        "stackTraceLimit": 10,
    }
