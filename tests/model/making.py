"""Jobs in every state, made by the functions of the lifecycle."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from holdfast.errors import ValidationError
from holdfast.model import lifecycle
from holdfast.model.acceptance import NO_DEFAULTS, accept, read
from holdfast.model.job import Failure, FailureCategory, Job, State
from holdfast.model.submission import Defaults, Parent, Spawner, Submission

NOW = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
ID = "4f3c0a52-6c6b-4d3f-9a57-0a9b7a6a2f10"
TEMPORARY = Failure(category=FailureCategory.TEMPORARY, message="try again")
PERMANENT = Failure(category=FailureCategory.PERMANENT, message="never works")


def job(
    *,
    defaults: Defaults = NO_DEFAULTS,
    parents: dict[str, Parent] | None = None,
    spawner: Spawner | None = None,
    **fields: object,
) -> Job:
    """A job that was just accepted."""
    submission = Submission(**{"type": "mail.send", **fields})
    return accept(
        submission, job_id=ID, now=NOW, defaults=defaults, parents=parents, spawner=spawner
    )


def faults(*, defaults: Defaults = NO_DEFAULTS, **fields: object) -> list[tuple[str, str]]:
    """Field and code of everything that is wrong with a submission."""
    return [(fault.field, fault.code) for fault in refusal(defaults=defaults, **fields).faults]


def refusal(*, defaults: Defaults = NO_DEFAULTS, **fields: object) -> ValidationError:
    """The error a submission is refused with."""
    try:
        accept(read({"type": "mail.send", **fields}), job_id=ID, now=NOW, defaults=defaults)
    except ValidationError as error:
        return error
    raise AssertionError(f"accepted {fields}")


def running(*, token: str = "t1", worker: str = "w1", **fields: object) -> Job:
    return lifecycle.claimed(job(**fields), token=token, worker=worker, now=NOW)


def in_state(state: State, **fields: object) -> Job:
    """A job in the given state."""
    return _WAYS[state](fields)


_WAYS: dict[State, Callable[[dict[str, object]], Job]] = {
    State.PENDING: lambda fields: job(hold=True, **fields),
    State.SCHEDULED: lambda fields: job(**fields),
    State.DELAYED: lambda fields: job(delay=60, **fields),
    State.RUNNING: lambda fields: running(**fields),
    State.RETRYING: lambda fields: lifecycle.after_failure(running(**fields), TEMPORARY, now=NOW),
    State.COMPLETED: lambda fields: lifecycle.completed(running(**fields), b"1", now=NOW),
    State.FAILED: lambda fields: lifecycle.after_failure(running(**fields), PERMANENT, now=NOW),
    State.DEAD_LETTER: lambda fields: lifecycle.after_failure(
        running(**{**fields, "max_attempts": 1}), TEMPORARY, now=NOW
    ),
    State.CANCELLED: lambda fields: lifecycle.cancelled(job(**fields), now=NOW),
}
