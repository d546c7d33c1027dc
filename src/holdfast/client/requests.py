"""Bodies, query strings and paths of requests to the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from urllib.parse import quote, urlencode

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.acceptance import read
from holdfast.model.job import Encoding
from holdfast.model.payload import PayloadError, encode
from holdfast.model.submission import Submission
from holdfast.model.times import format_duration, shown
from holdfast.tasks.middleware import MiddlewareChain

GENERATED_KEY_WINDOW = timedelta(minutes=10)
"""How long a generated idempotency key counts; it only makes repeats of a request safe."""

_DEFAULTS = dict(zip(Submission.__struct_fields__[1:], Submission.__struct_defaults__, strict=True))


TypeMisfit = Callable[[str, bytes, Encoding], str]
"""Returns why a payload does not fit a type, if its code is here; else an empty text."""


def submission_body(
    submission: Submission, *, add_window: bool, misfit: TypeMisfit | None = None
) -> dict[str, object]:
    """Return the given fields of a submission; ``add_window`` when the request brings the key."""
    if submission.faults:
        raise ValidationError(submission.faults)
    given = {
        name: value
        for name, default in _DEFAULTS.items()
        if name != "faults" and (value := getattr(submission, name)) is not default
    }
    body = {"type": submission.type, "payload": submission.payload, **given}
    return mapping_body(body, add_window=add_window, misfit=misfit)


def mapping_body(
    fields: Mapping[str, object], *, add_window: bool, misfit: TypeMisfit | None = None
) -> dict[str, object]:
    """Return a submission given as a mapping; the service validates it."""
    try:
        data, encoding = encode(fields.get("payload"))
    except PayloadError as error:
        raise ValidationError([error.fault("payload")]) from None
    if misfit is not None and (why := misfit(str(fields.get("type")), data, encoding)):
        raise ValidationError([Fault("payload", "INVALID", f"must fit the task: {why}")])
    body = {**fields, "payload": msgspec.Raw(data)}
    if encoding is Encoding.BYTES:
        body |= {"payload": data, "payload_encoding": "base64"}
    if add_window and not has_own_key(fields.get("idempotency_key"), fields.get("deduplication")):
        body.setdefault("idempotency_window", GENERATED_KEY_WINDOW)
    return body


async def prepared_body(
    given: Submission | Mapping[str, object], middleware: MiddlewareChain, misfit: TypeMisfit | None
) -> dict[str, object]:
    """Return the body of one job of a batch, as the middleware of the app returns it."""
    submission = given if isinstance(given, Submission) else read(given)
    if not isinstance(given, Submission) and (submission.faults or not middleware.submits):
        return mapping_body(given, add_window=True, misfit=misfit)
    prepared = await middleware.prepared(submission)
    return submission_body(prepared, add_window=True, misfit=misfit)


def has_own_key(idempotency_key: object, deduplication: object) -> bool:
    """Whether a submission says itself what repeats it: then the request brings no key for it."""
    return idempotency_key is not None or deduplication is not None


def selection(
    job_ids: Sequence[str] | None, wanted: Mapping[str, object] | None, as_of: object
) -> dict[str, object]:
    """Return the part of a body that selects many jobs."""
    given = {"job_ids": job_ids, "filter": wanted, "as_of": as_of}
    return {name: value for name, value in given.items() if value is not None}


def encode_body(body: object) -> bytes:
    """Return a body as JSON; ValidationError when it has no JSON form."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValidationError([Fault("body", "NOT_JSON", f"cannot be sent: {error}")]) from None


def query(values: Mapping[str, object]) -> str:
    """Return a query string: a list repeats its name, a map becomes ``name[key]``."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            pairs += [(f"{name}[{key}]", _text(one)) for key, one in value.items()]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            pairs += [(name, _text(one)) for one in value]
        elif value is not None:
            pairs.append((name, _text(value)))
    return f"?{urlencode(pairs)}" if pairs else ""


def job_path(job_id: str, suffix: str = "") -> str:
    """Return the path of a job, or of something below it."""
    if not isinstance(job_id, str) or not job_id:
        raise ValidationError([Fault("job_id", "INVALID", f"must be an id, got {shown(job_id)}")])
    return f"/jobs/{quote(job_id, safe='')}{suffix}"


def queue_path(queue: str, action: str) -> str:
    """Return the path of an action on a queue."""
    if not isinstance(queue, str) or not queue:
        raise ValidationError([Fault("queue", "INVALID", f"must be a name, got {shown(queue)}")])
    return f"/queues/{quote(queue, safe='')}/{action}"


def no_connection(connection: object) -> None:
    """ValidationError for a connection of the caller, which a service cannot use."""
    if connection is not None:
        message = "needs a store that shares your database: postgresql://"
        raise ValidationError([Fault("connection", "UNSUPPORTED", message)])


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case timedelta():
            return format_duration(value)
        case _:
            return str(msgspec.to_builtins(value))
