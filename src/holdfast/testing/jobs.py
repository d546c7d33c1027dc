"""Jobs as tests see them, and the messages of failed assertions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from holdfast.model.job import Encoding, Failure, Job, Priority, Progress, State
from holdfast.model.payload import decode_result

SHOWN = 10
"""How many jobs a message lists."""


class SandboxJob(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a job: what was submitted, and its outcome so far."""

    id: str
    type: str
    queue: str
    payload: object
    """The submitted payload: decoded JSON, or bytes."""
    state: State
    attempt: int
    priority: Priority
    created_at: datetime
    due_at: datetime | None
    tags: Mapping[str, str]
    idempotency_key: str
    depends_on: tuple[str, ...]
    spawned_by: str
    result: object
    """The decoded result of the handler."""
    failure: Failure | None
    progress: Progress | None
    checkpoint: object
    """The newest checkpoint: decoded JSON, or bytes."""

    def has(self, arguments: Mapping[str, object]) -> bool:
        """Whether the job was submitted with these arguments, and possibly others."""
        return not _differences(self.payload, arguments)

    def __str__(self) -> str:
        return f"{self.type}{_shown(self.payload)} {self.state}"


def sandbox_job(job: Job) -> SandboxJob:
    """Return a snapshot of a job."""
    return SandboxJob(
        id=job.id,
        type=job.type,
        queue=job.queue,
        payload=job.payload if job.encoding is Encoding.BYTES else _decoded(job.payload),
        state=job.state,
        attempt=job.attempt,
        priority=Priority(job.priority),
        created_at=job.created_at,
        due_at=job.due_at,
        tags=job.tags,
        idempotency_key=job.idempotency_key,
        depends_on=job.depends_on,
        spawned_by=job.spawned_by,
        result=decode_result(job.result),
        failure=job.failure,
        progress=job.progress,
        checkpoint=_decoded(job.checkpoint),
    )


def no_match(type_: str | None, arguments: Mapping[str, object], jobs: Iterable[SandboxJob]) -> str:
    """Return the message that no job matches, with the closest ones first."""
    message = f"no job of {type_ or 'any type'}{_shown(dict(arguments))} was submitted"
    ranked = sorted(jobs, key=lambda job: (job.type != type_, _distance(job, arguments)))
    if not ranked:
        return f"{message}; no job was submitted at all"
    lines = [f"  {job}{_hint(job, type_, arguments)}" for job in ranked[:SHOWN]]
    more = [f"  and {len(ranked) - SHOWN} more"] if len(ranked) > SHOWN else []
    return "\n".join([f"{message}; these were:", *lines, *more])


def unexpected(found: Iterable[SandboxJob], expected: str) -> str:
    """Return the message that these jobs were not expected."""
    jobs = list(found)
    lines = [f"  {job}" for job in jobs[:SHOWN]]
    more = [f"  and {len(jobs) - SHOWN} more"] if len(jobs) > SHOWN else []
    return "\n".join([f"expected {expected}, found {len(jobs)}:", *lines, *more])


def _hint(job: SandboxJob, type_: str | None, arguments: Mapping[str, object]) -> str:
    if job.type != type_ and type_ is not None:
        return ""
    different = _differences(job.payload, arguments)
    return f"  <- {', '.join(different)} differs" if different else ""


def _distance(job: SandboxJob, arguments: Mapping[str, object]) -> int:
    return len(_differences(job.payload, arguments))


def _differences(payload: object, arguments: Mapping[str, object]) -> list[str]:
    """Return the names of the arguments that the payload lacks or has with another value."""
    if not arguments:
        return []
    if not isinstance(payload, dict):
        same = "payload" in arguments and _through_json(arguments["payload"]) == payload
        return [] if same and len(arguments) == 1 else list(arguments)
    if list(arguments) == ["payload"] and "payload" not in payload:
        return [] if _through_json(arguments["payload"]) == payload else ["payload"]
    return [
        name
        for name, value in arguments.items()
        if name not in payload or payload[name] != _through_json(value)
    ]


def _through_json(value: object) -> object:
    """Return a value after a round trip through JSON, or unchanged if JSON cannot encode it."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError):
        return value


def _shown(payload: object) -> str:
    if isinstance(payload, dict):
        return "(" + ", ".join(f"{name}={value!r:.60}" for name, value in payload.items()) + ")"
    return "()" if payload is None else f"({payload!r:.60})"


def _decoded(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data
