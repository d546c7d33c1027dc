"""Submissions from request bodies; the payload stays raw, and all faults are collected."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault, ValidationError
from holdfast.http.fields import MAX_REST, NULL, check_rest, raw_fields, unknown, whole
from holdfast.model.acceptance import MOST_JOBS, read
from holdfast.model.policy import MEBIBYTE
from holdfast.model.reserved import RESERVED
from holdfast.model.submission import Submission
from holdfast.model.times import shown
from holdfast.runtime.off_loop import take_a_break


class _CommonSubmission(msgspec.Struct, forbid_unknown_fields=True):
    """The fields that most submissions have, with their types: decoded in one call.

    A body that does not fit is read again, field by field, to collect every fault.
    """

    type: str
    payload: msgspec.Raw
    queue: str | None = None
    priority: str | int | None = None
    max_attempts: int | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    tags: dict[str, str] | None = None
    depends_on: tuple[str, ...] = ()
    limit_key: str | None = None
    ref: str | None = None

    def submission(self) -> Submission:
        """Return the submission."""
        tags = self.tags
        return Submission(
            type=self.type,
            payload=self.payload,
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            idempotency_key=self.idempotency_key,
            correlation_id=self.correlation_id,
            tags=tags,
            depends_on=self.depends_on,
            limit_key=self.limit_key,
            ref=self.ref,
            faults=tag_faults(tags) if tags else (),
        )


class _CommonBatch(msgspec.Struct, forbid_unknown_fields=True):
    jobs: Annotated[list[_CommonSubmission], msgspec.Meta(max_length=MOST_JOBS)]
    atomic: bool = True


_common = msgspec.json.Decoder(_CommonSubmission)
_common_batch = msgspec.json.Decoder(_CommonBatch)
MAX_JOBS_REST = 4 * MEBIBYTE
"""Bytes of all jobs of a batch beside their payloads."""
_NOT_COMMON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)


def read_submission(body: bytes, *, key: str | None = None) -> Submission:
    """Read one submission; ``key`` is the idempotency key of the request's header."""
    check_rest(body, ("payload",))
    if key is None:
        with contextlib.suppress(*_NOT_COMMON):
            return _common.decode(body).submission()
    return submission_of(raw_fields(body), key=key)


def read_batch(body: bytes, *, key: str | None = None) -> tuple[list[Submission], bool]:
    """Read a batch, and whether it is atomic."""
    if key is None:
        with contextlib.suppress(*_NOT_COMMON):
            return _common_jobs(body)
    check_rest(body, ("jobs",))
    _check_jobs(body)
    given = raw_fields(body)
    faults = unknown(given, _BATCH)
    atomic = msgspec.json.decode(given["atomic"]) if "atomic" in given else True
    if not isinstance(atomic, bool):
        faults.append(Fault("atomic", "INVALID", f"must be true or false, got {shown(atomic)}"))
    jobs: list[msgspec.Raw] = []
    try:
        jobs = _jobs.decode(given["jobs"])
    except KeyError:
        faults.append(Fault("jobs", "REQUIRED", "is required"))
    except msgspec.ValidationError:
        faults.append(Fault("jobs", "INVALID", "must be a list of jobs"))
    if len(jobs) > MOST_JOBS:
        message = f"must be a list of 1 to {MOST_JOBS} jobs, got {len(jobs)}"
        faults.append(Fault("jobs", "OUT_OF_RANGE", message))
    if faults:
        raise ValidationError(faults)
    made = [
        _batch_job(job, None if key is None else f"{key}:{number}")
        for number, job in enumerate(jobs)
    ]
    return made, bool(atomic)


def _common_jobs(body: bytes) -> tuple[list[Submission], bool]:
    """Decode a batch at once; one look at a large one, which takes 25 ms, then job by job."""
    if len(body) <= MAX_REST:
        batch = _common_batch.decode(body)
        return [job.submission() for job in batch.jobs], batch.atomic
    some, atomic = msgspec.structs.astuple(_raw_batch.decode(body))
    take_a_break()
    jobs = _bounded_jobs(some, len(body))
    if len(body) - sum(len(bytes(job)) for job in jobs) > MAX_REST:
        raise ValueError("large beside its jobs")
    return [_common.decode(job).submission() for job in jobs], atomic


def _check_jobs(body: bytes) -> None:
    """Refuse a large batch with too many jobs, or with jobs that are large beside payloads."""
    if len(body) > MAX_REST:
        with contextlib.suppress(*_NOT_COMMON):  # read again, to say what is wrong with it
            (some,) = msgspec.structs.astuple(_jobs_of.decode(body))
            take_a_break()
            _bounded_jobs(some, len(body))
            take_a_break()


def _bounded_jobs(some: msgspec.Struct, size: int) -> list[msgspec.Raw]:
    """Return the jobs of a large batch of so many bytes, if they are neither too many nor large."""
    jobs = [job for job in msgspec.structs.astuple(some) if job is not None]
    if len(jobs) > MOST_JOBS:
        message = f"must be a list of 1 to {MOST_JOBS} jobs, got more"
        raise ValidationError([Fault("jobs", "OUT_OF_RANGE", message)])
    size -= sum(map(_payload_size, jobs))
    if size > MAX_JOBS_REST:
        message = f"must have at most {MAX_JOBS_REST} bytes beside payloads, got {size}"
        raise ValidationError([Fault("body", "TOO_LARGE", message)])
    return jobs


def _payload_size(job: msgspec.Raw) -> int:
    try:
        return len(bytes(_payload.decode(job).payload))
    except _NOT_COMMON:
        return 0


class _PayloadOnly(msgspec.Struct):
    payload: msgspec.Raw = msgspec.Raw(b"")


_SomeJobs = msgspec.defstruct(
    "_SomeJobs",
    [(f"job{number}", msgspec.Raw, None) for number in range(MOST_JOBS + 1)],
    array_like=True,
)
"""The jobs of a batch up to one too many: further ones are skipped, not built."""
_JobsOnly = msgspec.defstruct("_JobsOnly", [("jobs", _SomeJobs)])
_RawBatch = msgspec.defstruct(
    "_RawBatch", [("jobs", _SomeJobs), ("atomic", bool, True)], forbid_unknown_fields=True
)
_raw_batch = msgspec.json.Decoder(_RawBatch)
_jobs_of = msgspec.json.Decoder(_JobsOnly)
_payload = msgspec.json.Decoder(_PayloadOnly)
_BATCH = ("jobs", "atomic")
_jobs = msgspec.json.Decoder(list[msgspec.Raw])


def _batch_job(job: msgspec.Raw, key: str | None) -> Submission:
    try:
        check_rest(bytes(job), ("payload",))
        given = raw_fields(bytes(job))
        own = any(given.get(name, NULL) != NULL for name in ("idempotency_key", "deduplication"))
        return submission_of(given, key=None if own else key)
    except ValidationError as error:
        return Submission(type="", faults=error.faults)


def submission_of(given: Mapping[str, msgspec.Raw], *, key: str | None = None) -> Submission:
    """Return the submission in a JSON object's fields."""
    fields: dict[str, object] = {
        name: value if name == "payload" else _decode(value) for name, value in given.items()
    }
    faults = _payload_faults(fields)
    for name in ("max_attempts", "priority", "remove_on_complete", "remove_on_fail"):
        if name in fields:
            fields[name] = _whole_numbers(fields[name])
    tags = fields.get("tags")
    if isinstance(tags, dict):
        faults += tag_faults(tags)
    if key is not None:
        faults += _key_faults(fields, key)
        fields["idempotency_key"] = key
    made = read(fields)
    return replace(made, faults=(*made.faults, *faults)) if faults else made


def _whole_numbers(value: object) -> object:
    """Return a value, or an object of values, in which JSON's 5.0 is the whole number 5."""
    if isinstance(value, dict):
        return {name: whole(part) for name, part in value.items()}
    return whole(value)


def tag_faults(tags: Mapping[str, object]) -> tuple[Fault, ...]:
    """Return the faults of tags whose names holdfast uses itself."""
    if any(str(name).startswith(RESERVED) for name in tags):
        return (Fault("tags", "RESERVED", f"must not begin with {RESERVED!r}"),)
    return ()


def _decode(value: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return _Undecodable()


class _Undecodable:
    """A value that no field accepts: the field's reader reports what it expects."""


def _payload_faults(fields: dict[str, object]) -> list[Fault]:
    encoding = fields.pop("payload_encoding", "json")
    if "payload" not in fields:
        return [Fault("payload", "REQUIRED", "is required")]
    if encoding not in ("json", "base64"):
        message = f"must be json or base64, got {shown(encoding)}"
        return [Fault("payload_encoding", "INVALID", message)]
    if encoding == "base64":
        try:
            text = _decode(fields["payload"])  # type: ignore[arg-type]  # it is still raw
            fields["payload"] = base64.b64decode(text, validate=True)  # type: ignore[arg-type]
        except (binascii.Error, TypeError, ValueError):
            fields["payload"] = None
            return [Fault("payload", "INVALID", "must be base64")]
    return []


def _key_faults(fields: Mapping[str, object], key: str) -> list[Fault]:
    if fields.get("idempotency_key") in (None, key):
        return []
    message = "must not differ from the Idempotency-Key header"
    return [Fault("idempotency_key", "CONFLICT", message)]
