"""Requests as JSON: submissions and filters as the service takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from urllib.parse import quote, urlencode

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import Encoding
from holdfast.model.payload import PayloadError, encode
from holdfast.model.submission import Submission
from holdfast.model.times import format_duration, shown

AUTOMATIC = timedelta(minutes=10)
"""How long a key counts that only serves to repeat a request safely."""

_SILENT = dict(zip(Submission.__struct_fields__[1:], Submission.__struct_defaults__, strict=True))


def submission_body(submission: Submission, *, keyed: bool) -> dict[str, object]:
    """Return what was said of a job; ``keyed``: a key comes with the request."""
    if submission.faults:
        raise ValidationError(submission.faults)
    said = {
        name: value
        for name, silence in _SILENT.items()
        if name != "faults" and (value := getattr(submission, name)) is not silence
    }
    body = {"type": submission.type, "payload": submission.payload, **said}
    return loose_body(body, keyed=keyed)


def loose_body(fields: Mapping[str, object], *, keyed: bool) -> dict[str, object]:
    """Return loose fields as they are sent; what is wrong with them the service tells."""
    try:
        data, encoding = encode(fields.get("payload"))
    except PayloadError as error:
        raise ValidationError([error.fault("payload")]) from None
    body = {**fields, "payload": msgspec.Raw(data)}
    if encoding is Encoding.BYTES:
        body |= {"payload": data, "payload_encoding": "base64"}
    if keyed and fields.get("idempotency_key") is None:
        body.setdefault("idempotency_window", AUTOMATIC)
    return body


def written(body: object) -> bytes:
    """Return JSON; what cannot be JSON is told as a fault of the request."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValidationError([Fault("body", "NOT_JSON", f"cannot be sent: {error}")]) from None


def query(values: Mapping[str, object]) -> str:
    """Return a query string, lists as repeated names and maps as ``name[key]``."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            pairs += [(f"{name}[{key}]", _text(one)) for key, one in value.items()]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            pairs += [(name, _text(one)) for one in value]
        elif value is not None:
            pairs.append((name, _text(value)))
    return f"?{urlencode(pairs)}" if pairs else ""


def job_path(job_id: str, what: str = "") -> str:
    """Return the path of a job, or of something about it."""
    if not isinstance(job_id, str) or not job_id:
        raise ValidationError([Fault("job_id", "INVALID", f"must be an id, got {shown(job_id)}")])
    return f"/jobs/{quote(job_id, safe='')}{what}"


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case timedelta():
            return format_duration(value)
        case _:
            return str(msgspec.to_builtins(value))
