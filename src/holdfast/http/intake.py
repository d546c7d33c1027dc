"""Submissions out of request bodies: the payload untouched, everything wrong at once."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault, ValidationError
from holdfast.form import Submission
from holdfast.http.reading import raw_fields, whole
from holdfast.submission import read
from holdfast.tenancy import RESERVED
from holdfast.timing import shown


def read_submission(body: bytes, *, key: str | None = None) -> Submission:
    """Read one submission; ``key`` is an idempotency key that came beside it."""
    return submission_of(raw_fields(body), key=key)


def read_batch(body: bytes, *, key: str | None = None) -> tuple[list[Submission], bool]:
    """Read a batch and whether it is all or nothing."""
    given = raw_fields(body)
    faults = [Fault(n, "UNKNOWN_FIELD", "is not taken here") for n in given if n not in _BATCH]
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
    if faults:
        raise ValidationError(faults)
    made = [
        _member(job, None if key is None else f"{key}:{number}") for number, job in enumerate(jobs)
    ]
    return made, bool(atomic)


_BATCH = ("jobs", "atomic")
_jobs = msgspec.json.Decoder(list[msgspec.Raw])


def _member(job: msgspec.Raw, key: str | None) -> Submission:
    try:
        return submission_of(raw_fields(bytes(job)), key=key)
    except ValidationError as error:
        return Submission(type="", faults=error.faults)


def submission_of(given: Mapping[str, msgspec.Raw], *, key: str | None = None) -> Submission:
    """Make a submission of a JSON object's fields."""
    fields: dict[str, object] = {
        name: value if name == "payload" else _decoded(value) for name, value in given.items()
    }
    faults = _payload_faults(fields)
    for name in ("max_attempts", "priority"):
        if name in fields:
            fields[name] = whole(fields[name])
    tags = fields.get("tags")
    if isinstance(tags, dict) and any(str(name).startswith(RESERVED) for name in tags):
        faults.append(Fault("tags", "RESERVED", f"must not begin with {RESERVED!r}"))
    if key is not None:
        faults += _key_faults(fields, key)
        fields["idempotency_key"] = key
    made = read(fields)
    return replace(made, faults=(*made.faults, *faults)) if faults else made


def _decoded(value: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return _Broken()


class _Broken:
    """Stands for a value that no field takes: its reader says what it wants instead."""


def _payload_faults(fields: dict[str, object]) -> list[Fault]:
    encoding = fields.pop("payload_encoding", "json")
    if "payload" not in fields:
        return [Fault("payload", "REQUIRED", "is required")]
    if encoding not in ("json", "base64"):
        told = f"must be json or base64, got {shown(encoding)}"
        return [Fault("payload_encoding", "INVALID", told)]
    if encoding == "base64":
        try:
            text = _decoded(fields["payload"])  # type: ignore[arg-type]  # it is still raw
            fields["payload"] = base64.b64decode(text, validate=True)  # type: ignore[arg-type]
        except (binascii.Error, TypeError, ValueError):
            fields["payload"] = None
            return [Fault("payload", "INVALID", "must be base64")]
    return []


def _key_faults(fields: Mapping[str, object], key: str) -> list[Fault]:
    if fields.get("idempotency_key", key) == key:
        return []
    told = "must not differ from the Idempotency-Key header"
    return [Fault("idempotency_key", "CONFLICT", told)]
