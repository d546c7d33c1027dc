"""What ``ctx.spawn`` takes: a submission, a task with its options, or a type and a payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from msgspec.structs import astuple, replace

from holdfast.encryption.envelope import require_decrypted
from holdfast.errors import Fault, ValidationError
from holdfast.model.children import ChildJob
from holdfast.model.payload import clean, decode_result
from holdfast.model.submission import Submission, SubmitOptions
from holdfast.model.times import shown
from holdfast.model.validation import MAX_KEY


class BoundTask:
    """A job type with the options of its jobs: a task, or what its ``using`` returns."""

    def __init__(self, type_: str) -> None:
        self.type = type_
        self._options: SubmitOptions = {}
        self._connection: object = None

    @property
    def options(self) -> SubmitOptions:
        """The options that ``using`` gave."""
        return self._options

    @property
    def connection(self) -> object:
        """The database connection that ``using`` gave; None for the store's own."""
        return self._connection


def child_of(task: object, payload: object, options: Mapping[str, object]) -> Submission:
    """Return the submission of a spawned job; ``options`` win over those of task or submission.

    Raises ``ValidationError`` for anything that cannot be spawned or would be ignored.
    """
    if unknown := [name for name in options if name not in SubmitOptions.__annotations__]:
        raise ValidationError(
            [Fault(name, "UNKNOWN_FIELD", "is not an option of a job") for name in unknown]
        )
    match task:
        case Submission():
            if payload is not None:
                message = "must not be given together with a Submission, which has its own"
                raise ValidationError([Fault("payload", "CONFLICT", message)])
            return replace(task, **options)
        case BoundTask():
            if task.connection is not None:
                message = "must not be given: a child is written under the lease of its spawner"
                raise ValidationError([Fault("connection", "UNSUPPORTED", message)])
            return _submission(task.type, payload, {**task.options, **options})
        case str():
            return _submission(task, payload, options)
        case _:
            message = f"must be a task, a Submission or the name of a type, got {shown(task)}"
            raise ValidationError([Fault("task", "INVALID", message)])


def check_key(key: object) -> None:
    """Raise ``ValidationError`` for a spawn key that cannot be stored."""
    if key is None or (isinstance(key, str) and 0 < len(key) <= MAX_KEY and clean(key) == key):
        return
    message = f"must be a text of 1 to {MAX_KEY} characters without NUL, got {shown(key)}"
    raise ValidationError([Fault("key", "INVALID", message)])


def given_options(submission: Submission) -> SubmitOptions:
    """Return what a submission gives beside its type and payload."""
    fields = zip(_OPTIONS, astuple(submission)[_FIRST:-1], _UNSET, strict=True)
    given = {name: value for name, value, unset in fields if value is not unset}
    return cast("SubmitOptions", given)


def _submission(type_: str, payload: object, options: Mapping[str, object]) -> Submission:
    return Submission(type=type_, payload=payload, **options)  # type: ignore[arg-type]  # accept() checks


_FIRST = len(("type", "payload"))
_OPTIONS = Submission.__struct_fields__[_FIRST:-1]
_UNSET = Submission.__struct_defaults__[_FIRST - 1 : -1]


def received(child: ChildJob) -> ChildJob:
    """Return a child as a handler receives it: with its result as a value."""
    data = child.result
    if not isinstance(data, bytes):
        return child
    require_decrypted(data, f"result of job {child.job_id}")
    return replace(child, result=decode_result(data))
