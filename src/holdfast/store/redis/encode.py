"""Jobs as BullMQ hashes: what is stored in which field.

BullMQ's own fields hold what BullMQ knows. ``hf:job`` holds the rest as submitted, ``hf:rest``
what changes rarely, and a few short fields what scripts read.
"""

from __future__ import annotations

import base64

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault
from holdfast.model import payload
from holdfast.model.deduplication import Deduplication
from holdfast.model.job import Encoding, Job, LogLine, Transition
from holdfast.model.policy import MEBIBYTE, BackoffKind
from holdfast.store.redis.carrier import carrier_of
from holdfast.store.redis.fields import (
    MICROSECOND,
    MILLISECOND,
    Edge,
    Fixed,
    Rest,
    micros,
    optional_micros,
    parsed,
)

HashFields = list[str | int | msgspec.Raw]
"""Names and values of a hash in turn, as an argument of a script carries them."""

LARGEST_JOB = 10 * MEBIBYTE
"""Bytes of a job's data and options together."""

pack = msgspec.msgpack.Encoder().encode
_encode = msgspec.json.Encoder().encode


def as_string(data: bytes) -> msgspec.Raw:
    """Return bytes as a msgpack string: Lua's unpacker knows no binary type."""
    return msgspec.Raw(b"\xdb" + len(data).to_bytes(4, "big") + data)


def new_fields(job: Job, data: msgspec.Raw | int) -> HashFields:
    """Return the hash of a new job around its payload, or the number that stands for it."""
    own: HashFields = ["data", data, "opts", _json(_options(job))]
    return own + shared_fields(job)


def size_fault(job: Job, payload_bytes: int) -> Fault | None:
    """Return the fault of a job whose data and options are too large; see M-12.

    The size of its payload is given: the payload may be encrypted later.
    """
    options = sum(len(value) for value in shared_fields(job) if isinstance(value, str))
    if job.encoding is not Encoding.JSON:
        payload_bytes = len('""') + 4 * -(-payload_bytes // 3)  # as a string in base64
    size = payload_bytes + len(_json(_options(job))) + options
    return payload.size_fault(size, LARGEST_JOB)


def data_value(job: Job) -> msgspec.Raw:
    """Return a job's payload as BullMQ's data."""
    return as_string(payload_data(job.payload, job.encoding))


def payload_data(payload: bytes, encoding: Encoding) -> bytes:
    """Return a payload as JSON, because Node parses every payload: bytes become a string."""
    return payload if encoding is Encoding.JSON else b'"%s"' % base64.b64encode(payload)


def options_around_id(job: Job) -> tuple[str, str]:
    """Return BullMQ's options before and after the job's id."""
    before, _, after = _json(_options(job)).partition(_json(job.id))
    return f'{before}"', f'"{after}'


def shared_fields(job: Job) -> HashFields:
    """Return the fields of a new job's hash that depend neither on its id nor on its payload."""
    created = micros(job.created_at)
    delay = (micros(job.due_at) - created) // 1000 if job.due_at else 0
    fixed = Fixed(**{name: getattr(job, name) for name in Fixed.__struct_fields__})
    fields: HashFields = [
        *("name", job.type),
        *("timestamp", created // 1000, "delay", max(0, delay), "priority", job.priority),
        *("hf:job", _json(fixed), "hf:ttl", job.lease_ttl // MICROSECOND),
    ]
    if (rest := _rest_of(job)) != Rest(max_attempts=job.max_attempts):
        fields += ["hf:rest", _json(rest)]
    if job.limit_key:
        fields += ["hf:limit", job.limit_key]
    if job.remove_on_complete is not None or job.remove_on_fail is not None:
        fields += ["hf:keep", 1]
    if job.deduplication is not None:
        fields += ["deid", job.deduplication.id]
    return fields


def deduplication_options(given: Deduplication) -> dict[str, object]:
    """Return the deduplication of a job as BullMQ's option ``de``."""
    flags = {
        "extend": given.extend,
        "replace": given.replace,
        "reschedule": given.reschedule,
        "keepLastIfActive": given.keep_last_if_active,
    }
    options: dict[str, object] = {name: True for name, is_set in flags.items() if is_set}
    if given.ttl is not None:
        options["ttl"] = given.ttl // MILLISECOND
    return {"id": given.id, **options}


def amended_fixed(fixed: Fixed, job: Job) -> str:
    """Return ``hf:job`` with what callers may change of it."""
    return _json(
        replace(
            fixed,
            tags=job.tags,
            correlation_id=job.correlation_id,
            callback_url=job.callback_url,
        )
    )


def now_values(job: Job) -> list[str]:
    """Return the first values of ``hf:now``, in their order; scripts add the others."""
    return [
        job.state.value,
        str(job.revision),
        optional_micros(job.updated_at),
        optional_micros(job.due_at),
        optional_micros(job.scheduled_at),
        optional_micros(job.started_at),
        optional_micros(job.finished_at),
        optional_micros(job.expires_at),
        optional_micros(job.lease.until) if job.lease else "",
    ]


def rest_value(before: Job, after: Job) -> str | None:
    """Return ``hf:rest``; None when a change leaves it as it is."""
    if not rest_changed(before, after):
        return None
    return _json(replace(_rest_of(after), kind=after.dependency_kind))


def rest_changed(before: Job, after: Job) -> bool:
    """Whether a change concerns ``hf:rest``."""
    return (
        before.max_attempts != after.max_attempts
        or before.dependency_kind is not after.dependency_kind
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
    """Return a transition as scripts receive it: event, from, to, microseconds, stored text."""
    moment = micros(edge.at)
    source = edge.from_state.value if edge.from_state else False
    return [edge.event.value, source, edge.to_state.value, moment, edge_text(edge, moment)]


def edge_text(edge: Transition, moment: int) -> str:
    """Return a transition as stored."""
    stored = Edge(
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
    return _json(stored)


def log_row(line: LogLine) -> str:
    """Return a log line as a row of BullMQ's log list."""
    return _json(line)


def result_values(result: bytes | None) -> tuple[str, HashFields]:
    """Return a result as BullMQ's returnvalue, which must be JSON, and further fields if not."""
    if result is None:
        return "null", []
    if result != b"null" and is_json(result):
        return result.decode(), []
    return "null", ["hf:res", as_string(result)]


def is_json(data: bytes) -> bool:
    """Whether Node can parse it."""
    return data == b"null" or parsed(data) is not None


def _json(value: object) -> str:
    return _encode(value).decode()


_NODE_BACKOFF = {BackoffKind.CONSTANT: "fixed", BackoffKind.LINEAR: "fixed"}


def _options(job: Job) -> dict[str, object]:
    """Return what a BullMQ worker needs to run and retry the job."""
    backoff: dict[str, object] = {
        "type": _NODE_BACKOFF.get(job.backoff.strategy, "exponential"),
        "delay": job.backoff.initial_delay // MILLISECOND,
    }
    if job.backoff.strategy is BackoffKind.FULL_JITTER:
        backoff["jitter"] = 1
    keep: dict[str, object] = {
        "removeOnComplete": job.remove_on_complete,
        "removeOnFail": job.remove_on_fail,
    }
    if job.deduplication is not None:
        keep["de"] = deduplication_options(job.deduplication)
    if (carrier := carrier_of(job.extra)) is not None:
        keep["tm"] = carrier
    return {
        **{name: value for name, value in keep.items() if value is not None},
        "attempts": job.max_attempts,
        "backoff": backoff,
        "priority": job.priority,
        "jobId": job.id,
        "kl": 1000,
        "stackTraceLimit": 10,
    }
