"""Every decision that can be swapped in, by name: a job and the time give the job after it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.model import lifecycle
from holdfast.model.dependencies import Verdict
from holdfast.model.job import FailureCategory, State
from tests.conformance.hand import failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.model.job import Failure, Job

    Decision = Callable[[Job, datetime], Job]

BUSY = failure(retry_after=timedelta(seconds=10), code="BUSY")
REFUSED = failure(
    FailureCategory.PERMANENT,
    "no\n'good' ü",
    code="BAD",
    stack_trace="line 1\nline 2",
    context={"step": "2", "größe": "ß"},
    host="h1",
)
SLOW = failure(FailureCategory.TIMEOUT, "too slow", code="TIMEOUT")


def _failed_with(reported: Failure) -> Decision:
    return lambda job, now: lifecycle.after_failure(job, reported, now=now)


def _wished(*, force: bool) -> Decision:
    return lambda job, now: lifecycle.cancel_requested(job, reason="unwanted", force=force, now=now)


def _judged(outcome: State) -> Decision:
    return lambda job, now: lifecycle.dependency_ended(job, Verdict(outcome, "judged"), now=now)


DECISIONS: dict[str, Decision] = {
    "complete": lambda job, now: lifecycle.completed(job, b'{"done":true}', now=now),
    "complete_empty": lambda job, now: lifecycle.completed(job, None, now=now),
    "fail": _failed_with(failure()),
    "fail_busy": _failed_with(BUSY),
    "refuse": _failed_with(REFUSED),
    "time_out": _failed_with(SLOW),
    "lapse": lambda job, now: lifecycle.lease_lost(job, now=now),
    "lapse_slowly": lambda job, now: lifecycle.lease_lost(job, now=now, jitter=1.0),
    "give_back": lambda job, now: lifecycle.given_back(job, now=now),
    "cancel": _wished(force=False),
    "cancel_by_force": _wished(force=True),
    "stop": lambda job, now: lifecycle.cancelled(job, now=now),
    "expire": lambda job, now: lifecycle.lifetime_over(job, now=now),
    "release": lambda job, now: lifecycle.released(job, now=now),
    "reopen": lambda job, now: lifecycle.reopened(job, now=now),
    "reopen_reset": lambda job, now: lifecycle.reopened(
        job, now=now, reset_attempts=True, priority=0
    ),
    "reopen_later": lambda job, now: lifecycle.reopened(job, now=now, delay=timedelta(seconds=80)),
    "answer_late": lambda job, now: lifecycle.completed(
        lifecycle.resumed(job, now=now), b'"late"', now=now
    ),
    "let_run": _judged(State.SCHEDULED),
    "inherit_failed": _judged(State.FAILED),
    "inherit_dead": _judged(State.DEAD_LETTER),
    "inherit_cancelled": _judged(State.CANCELLED),
}

ENDINGS: dict[State, Decision] = {
    State.COMPLETED: DECISIONS["complete"],
    State.FAILED: DECISIONS["refuse"],
    State.DEAD_LETTER: DECISIONS["expire"],
    State.CANCELLED: DECISIONS["stop"],
}
"""What ends a running job, by where it ends."""
