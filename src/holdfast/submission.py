"""From what a caller asked for to a job, with every fault at once.

The id and the time come in as arguments, so accepting the same submission again gives the
same job and a repeated write is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import is_

import msgspec
from msgspec.structs import astuple, replace

from holdfast import lifecycle
from holdfast.errors import Fault, ValidationError
from holdfast.form import Defaults, Parent, Spawner, Submission
from holdfast.intake import Intake
from holdfast.job import Encoding, Job
from holdfast.payload import PayloadError, clean, encode
from holdfast.timing import shown

NO_DEFAULTS = Defaults()
NO_PARENTS: Mapping[str, Parent] = {}
FIELDS = frozenset(Submission.__struct_fields__) - {"faults"}


def read(fields: Mapping[str, object]) -> Submission:
    """Make a submission from loose fields.

    Nothing is refused here: what is wrong with the names travels in ``faults`` and is
    raised by ``accept`` together with what is wrong with the values.
    """
    if not isinstance(fields, Mapping):
        raise ValidationError([Fault("job", "INVALID", f"must be an object, got {shown(fields)}")])
    known = {name: value for name, value in fields.items() if name in FIELDS}
    faults = [_unknown(name) for name in fields if name not in FIELDS]
    if "type" not in known:
        faults.append(Fault("type", "REQUIRED", "is required"))
    elif not isinstance(known["type"], str):
        given = shown(known["type"])
        faults.append(Fault("type", "INVALID", f"must be a string, got {given}"))
    if any(fault.field == "type" for fault in faults):
        known["type"] = ""
    return Submission(**known, faults=tuple(faults))  # type: ignore[arg-type]  # accept() checks


class Plain(msgspec.Struct, frozen=True):
    """What most submissions come to: a job of a known kind that waits for nothing."""

    kind: Job
    payload: bytes
    encoding: Encoding


def plain(submission: Submission, defaults: Defaults) -> Plain | None:
    """Read a submission that says no more than most do; None when it must be looked at closer."""
    said = astuple(submission)
    if not all(map(is_, said[len(_USUAL) :], _SILENCE)):
        return None
    try:
        kind = _kind(submission.type, submission.queue, submission.priority, defaults)
        payload, encoding = encode(submission.payload)
    except (ValidationError, PayloadError, TypeError):
        return None
    if len(payload) > defaults.limits.payload_bytes:
        return None
    return Plain(kind, payload, encoding)


class Births:
    """Lets plain jobs be born in one moment: those of a kind share all but id and payload."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._first: dict[int, tuple[Job, Job]] = {}

    def job(self, asked: Plain, job_id: str) -> Job:
        """Return a new job, made like the first of its kind."""
        kind, payload, encoding = asked.kind, asked.payload, asked.encoding
        if first := self._first.get(id(kind)):
            return replace(first[1], id=job_id, payload=payload, encoding=encoding)
        job = lifecycle.enqueued_again(
            kind, now=self._now, id=job_id, payload=payload, encoding=encoding
        )
        self._first[id(kind)] = kind, job  # the kind with it, so that its id stays its own
        return job


_USUAL = ("type", "payload", "queue", "priority")
assert Submission.__struct_fields__[: len(_USUAL)] == _USUAL
_SILENCE = Submission.__struct_defaults__[len(_USUAL) - 1 :]
_LONG_AGO = datetime.fromtimestamp(0, UTC)


@lru_cache(maxsize=1024, typed=True)
def _kind(type_: str, queue: str | None, priority: object, defaults: Defaults) -> Job:
    """Return a job that waits for nothing, without what is its own."""
    asked = Submission(type=type_, queue=queue, priority=priority)  # type: ignore[arg-type]  # it checks
    job = Intake(asked, defaults, _LONG_AGO, NO_PARENTS).job("", None)
    return lifecycle.enqueued(lifecycle.submitted(job), now=_LONG_AGO)


def accept(
    submission: Submission,
    *,
    job_id: str,
    now: datetime,
    defaults: Defaults = NO_DEFAULTS,
    parents: Mapping[str, Parent] | None = None,
    spawner: Spawner | None = None,
) -> Job:
    """Make a job of a submission, or raise ValidationError with everything that is wrong."""
    if spawner is None and (asked := plain(submission, defaults)):
        return Births(now).job(asked, job_id)
    intake = Intake(submission, defaults, now, parents or NO_PARENTS)
    job = lifecycle.submitted(intake.job(job_id, spawner))
    return job if job.held or job.depends_on else lifecycle.enqueued(job, now=now)


def _unknown(name: object) -> Fault:
    field = clean(name, 60) if isinstance(name, str) else shown(name)
    if name in ("id", "job_id"):
        return Fault(field, "UNKNOWN_FIELD", "must not be given: the system assigns it")
    return Fault(field, "UNKNOWN_FIELD", "is not a field of a submission")
