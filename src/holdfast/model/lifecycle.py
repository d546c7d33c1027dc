"""The state machine: one table, one function that moves a job, one function per event.

Pure and total: every function takes a job and returns the job after the event, with its
transitions in ``trail``. ``now`` is the store's time; ``jitter`` is a random number in [-1, 1]
from the caller. Whether the result may be written is decided by the store's fence.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import force_setattr, replace

from holdfast.errors import IllegalTransitionError
from holdfast.model.dependencies import Verdict
from holdfast.model.job import (
    EXPIRED,
    LEASE_EXPIRED,
    LIVE,
    TERMINAL,
    CancelRequest,
    Event,
    Failure,
    FailureCategory,
    Job,
    Lease,
    State,
    Transition,
    attempt_limit,
)
from holdfast.model.payload import clean
from holdfast.model.policy import SECOND, CustomDelay
from holdfast.model.times import format_timestamp

NOTHING = timedelta(0)

P, S, D, R, W = State.PENDING, State.SCHEDULED, State.DELAYED, State.RUNNING, State.RETRYING
DONE, FAILED, DEAD, CANCELLED = State.COMPLETED, State.FAILED, State.DEAD_LETTER, State.CANCELLED

TABLE: frozenset[tuple[State | None, Event, State]] = frozenset(
    {
        (None, Event.SUBMIT, P),
        (P, Event.ENQUEUE, S),
        (P, Event.DELAY, D),
        (P, Event.INHERIT, FAILED),
        (P, Event.INHERIT, DEAD),
        (P, Event.INHERIT, CANCELLED),
        (D, Event.DUE, S),
        (W, Event.DUE, S),
        (S, Event.CLAIM, R),
        (S, Event.RESUME, R),
        (R, Event.COMPLETE, DONE),
        (R, Event.FAIL, FAILED),
        (R, Event.RETRY, W),
        (R, Event.LAPSE, W),
        (R, Event.GIVE_BACK, W),
        (R, Event.WAIT, P),
        (R, Event.EXHAUST, DEAD),
        (FAILED, Event.REOPEN, S),
        (FAILED, Event.REOPEN, D),
        (FAILED, Event.REOPEN, P),
        (DEAD, Event.REOPEN, S),
        (DEAD, Event.REOPEN, D),
        (DEAD, Event.REOPEN, P),
    }
    | {(state, Event.CANCEL, CANCELLED) for state in LIVE}
    | {(state, Event.EXPIRE, DEAD) for state in LIVE}
)

EDGES = frozenset((before, after) for before, _, after in TABLE)
"""The table without its events: every pair of states that may follow each other."""

MAX_REASON = 1000
"""Characters of a failure's message that the history repeats as the reason."""
MAX_CODE = 128
"""Characters of a failure's code: stores count by it, and no index accepts long texts."""

LAPSE_SPREAD = SECOND / 4
"""Jobs of a dead worker become due spread over this time, not all at once."""


def step(
    job: Job, event: Event, to: State, *, now: datetime, reason: str = "", **changes: object
) -> Job:
    """Move a job along one edge of the table. Nothing else gives a job another state."""
    if (job.state, event, to) not in TABLE:
        raise IllegalTransitionError(job.id, job.state, event, to)
    after = replace(job, state=to, revision=job.revision + 1, updated_at=now, **changes)
    lease = after.lease
    edge = Transition(
        event=event,
        from_state=job.state,
        to_state=to,
        at=now,
        reason=reason,
        attempt=after.attempt,
        lease_version=lease.version if lease else 0,
        worker=lease.worker if lease else "",
        failure=after.failure if "failure" in changes else None,
    )
    force_setattr(after, "trail", (*job.trail, edge))  # made here, so no other code has it yet
    return after


def submitted(job: Job) -> Job:
    """Record that a job was accepted."""
    if job.state is not P or job.trail:
        raise IllegalTransitionError(job.id, job.state, Event.SUBMIT, P)
    return replace(job, trail=(Transition.submitted(job.created_at),))


def enqueued(job: Job, *, now: datetime, reason: str = "nothing to wait for") -> Job:
    """PENDING -> SCHEDULED, or DELAYED when its time has not come."""
    if job.due_at is not None and job.due_at > now:
        return step(job, Event.DELAY, D, now=now, reason=f"due at {format_timestamp(job.due_at)}")
    return step(job, Event.ENQUEUE, S, now=now, reason=reason, scheduled_at=now)


def enqueued_again(job: Job, *, now: datetime, **changes: object) -> Job:
    """Return a copy of a job that was enqueued when it was submitted, submitted now."""
    submit, enqueue = job.trail
    return replace(
        job,
        **changes,
        created_at=now,
        updated_at=now,
        scheduled_at=now,
        expires_at=now + job.lifetime,
        trail=(replace(submit, at=now), replace(enqueue, at=now)),
    )


def released(job: Job, *, now: datetime) -> Job:
    """Release a held job: into the queue, or to wait for its dependencies."""
    if not job.held or job.state is not P:
        return job
    free = replace(job, held=False, revision=job.revision + 1)
    return free if job.depends_on else enqueued(free, now=now, reason="released")


def dependency_ended(job: Job, verdict: Verdict, *, now: datetime) -> Job:
    """PENDING -> the verdict's state; unchanged while the job must wait or is held."""
    if verdict.outcome is None or job.held:
        return job
    if verdict.outcome is S:
        return enqueued(job, now=now, reason=verdict.reason)
    category = FailureCategory.CANCELLED if verdict.outcome is CANCELLED else FailureCategory.SYSTEM
    failure = Failure(category=category, code="DEPENDENCY_ENDED", message=verdict.reason, at=now)
    return _ended(job, Event.INHERIT, verdict.outcome, failure, now=now)


def due(job: Job, *, now: datetime) -> Job:
    """DELAYED or RETRYING -> SCHEDULED, when its time has come."""
    return step(job, Event.DUE, S, now=now, reason="time reached", scheduled_at=now)


def claimed(job: Job, *, token: str, worker: str, now: datetime) -> Job:
    """SCHEDULED -> RUNNING under a new lease; the attempt counts from here."""
    return step(
        job,
        Event.CLAIM,
        R,
        now=now,
        reason="claimed",
        attempt=job.attempt + 1,
        lease=Lease(token, job.lease_version + 1, worker, now + job.lease_ttl),
        started_at=now,
    )


def may_answer(job: Job, token: str) -> bool:
    """Whether the holder of ``token`` may still report the outcome.

    Its lease must be the newest one, without an outcome; it may have expired.
    """
    return (
        job.state in (R, W, S)
        and job.lease is not None
        and job.lease.token == token
        and job.lease.until is not None
    )


def has_answered(job: Job, token: str) -> bool:
    """Whether the holder of ``token`` has already reported the outcome: this is a repeat."""
    return job.lease is not None and job.lease.token == token and job.lease.until is None


def resumed(job: Job, *, now: datetime) -> Job:
    """Return a lapsed job that was not claimed again to its last holder, which has its outcome."""
    waiting = due(job, now=now) if job.state is W else job
    return step(waiting, Event.RESUME, R, now=now, reason="late answer under the newest lease")


def held_again(job: Job, *, now: datetime) -> Job:
    """Return the job as its last holder needs it to report: running, resumed if it lapsed."""
    return job if job.state is R else resumed(job, now=now)


def completed(job: Job, result: bytes | None, *, now: datetime) -> Job:
    """RUNNING -> COMPLETED."""
    return step(
        job,
        Event.COMPLETE,
        DONE,
        now=now,
        reason="handler returned",
        result=result,
        finished_at=now,
        lease=lease_answered(job),
        failure=None,
    )


def after_failure(
    job: Job,
    failure: Failure,
    *,
    now: datetime,
    jitter: float = 0.0,
    custom: CustomDelay | None = None,
) -> Job:
    """RUNNING -> RETRYING, FAILED, DEAD_LETTER or CANCELLED, by what went wrong."""
    if not failure.uses_attempt and now < job.expires_at:
        return postponed(job, failure.retry_after or NOTHING, now=now, reason=failure.message)
    failure = _noted(job, failure, now)
    answered = replace(job, lease=lease_answered(job))
    ended = _end_of_attempt(answered, failure, now=now)
    if ended is not None:
        return ended
    delay = failure.retry_after
    if delay is None:
        delay = job.backoff.delay(job.attempt, jitter=jitter, custom=custom)
    return _retrying(answered, Event.RETRY, failure, now=now, delay=delay)


def lease_lost(
    job: Job, *, now: datetime, jitter: float = 0.0, why: str = EXPIRED, suspect: bool = False
) -> Job:
    """RUNNING with an expired lease -> RETRYING, or its end without another attempt."""
    system = FailureCategory.SYSTEM
    expired = Failure(category=system, code=LEASE_EXPIRED, message=why, suspect=suspect)
    failure = _noted(job, expired, now)
    delay = LAPSE_SPREAD * ((1 + jitter) / 2)
    return _end_of_attempt(job, failure, now=now) or _retrying(
        job, Event.LAPSE, failure, now=now, delay=delay
    )


def _end_of_attempt(job: Job, failure: Failure, *, now: datetime) -> Job | None:
    """Return the job after its last failure; None when it has another attempt."""
    if job.state is not R:
        raise IllegalTransitionError(job.id, job.state, Event.FAIL, FAILED)
    if job.cancel is not None or failure.category is FailureCategory.CANCELLED:
        return cancelled(job, now=now, failure=failure)
    if now >= job.expires_at:
        return lifetime_over(replace(job, failure=failure), now=now)
    if not retryable(job, failure):
        return _ended(job, Event.FAIL, FAILED, failure, now=now)
    if job.attempt >= job.max_attempts:
        reason = f"attempt {job.attempt} of {attempt_limit(job)} failed: {failure.message}"
        return _ended(job, Event.EXHAUST, DEAD, failure, now=now, reason=reason)
    return None


def retryable(job: Job, failure: Failure) -> bool:
    """Whether this kind of failure is retried."""
    if failure.category is FailureCategory.TIMEOUT:
        return job.retry_timeouts
    if failure.category is FailureCategory.SYSTEM:
        return job.retry_crashes
    return failure.category is FailureCategory.TEMPORARY


def given_back(job: Job, *, now: datetime, reason: str = "worker is stopping") -> Job:
    """RUNNING -> RETRYING -> SCHEDULED at once, without using up an attempt."""
    back = postponed(job, NOTHING, now=now, reason=reason)
    return due(back, now=now) if back.state is W else back


def postponed(job: Job, delay: timedelta, *, now: datetime, reason: str) -> Job:
    """RUNNING -> RETRYING for a time, without using up an attempt."""
    if job.state is R and job.cancel is not None:
        return cancelled(replace(job, lease=lease_answered(job)), now=now)
    return step(
        job,
        Event.GIVE_BACK,
        W,
        now=now,
        reason=clean(reason, MAX_REASON),
        attempt=job.attempt - 1,
        due_at=now + max(NOTHING, min(delay, job.lifetime)),
        lease=lease_answered(job),
    )


def cancel_requested(job: Job, *, reason: str, force: bool, now: datetime) -> Job:
    """Cancel at once or, while the job runs, record the request; an ended job does not change."""
    if job.state in TERMINAL:
        return job
    reason = clean(reason, MAX_REASON) or "cancelled"
    if job.state is not R:
        return cancelled(job, now=now, reason=reason)
    force = force or (job.cancel is not None and job.cancel.force)
    return replace(job, cancel=CancelRequest(reason, force, now), revision=job.revision + 1)


def cancelled(job: Job, *, now: datetime, reason: str = "", failure: Failure | None = None) -> Job:
    """Any live state -> CANCELLED."""
    if not reason:
        reason = job.cancel.reason if job.cancel else failure.message if failure else "cancelled"
    if failure is None:
        category = FailureCategory.CANCELLED
        failure = _noted(job, Failure(category=category, code="CANCELLED", message=reason), now)
    return _ended(job, Event.CANCEL, CANCELLED, failure, now=now, reason=reason)


def lifetime_over(job: Job, *, now: datetime) -> Job:
    """Any live state -> DEAD_LETTER, when the lifetime is over."""
    message = f"not finished within its lifetime of {job.lifetime.total_seconds():g} s"
    if job.failure is not None:
        message = f"{message}, last failure: {job.failure.message}"
    category = FailureCategory.TIMEOUT
    failure = Failure(category=category, code="LIFETIME_EXCEEDED", message=message)
    return _ended(job, Event.EXPIRE, DEAD, _noted(job, failure, now), now=now)


def reopened(
    job: Job,
    *,
    now: datetime,
    reset_attempts: bool = False,
    priority: int | None = None,
    delay: timedelta = NOTHING,
) -> Job:
    """FAILED or DEAD_LETTER -> SCHEDULED, DELAYED or PENDING by an operator: a new generation.

    A job with dependencies waits for them again, in PENDING: for those that have completed it
    waits no longer than for the verdict. Without ``reset_attempts`` the job gets one further
    attempt if none is left: its limit stays, and an attempt beyond it is the last. The lifetime
    starts again. The lease of the old generation ends: its holder can write nothing more.
    """
    attempt = 0 if reset_attempts else job.attempt
    later = delay > NOTHING
    start = now + delay if later else now
    to = P if job.depends_on else D if later else S
    return step(
        job,
        Event.REOPEN,
        to,
        now=now,
        reason="retried by an operator",
        attempt=attempt,
        generation=job.generation + 1,
        priority=job.priority if priority is None else priority,
        held=False,
        due_at=start if later else None,
        scheduled_at=now if to is S else None,
        finished_at=None,
        expires_at=start + job.lifetime,
        cancel=None,
        lease=replace(job.lease, token="", until=None) if job.lease else None,
    )


def _ended(
    job: Job, event: Event, to: State, failure: Failure, *, now: datetime, reason: str = ""
) -> Job:
    reason = clean(reason or failure.message, MAX_REASON)
    return step(job, event, to, now=now, reason=reason, failure=failure, finished_at=now)


def _retrying(job: Job, event: Event, failure: Failure, *, now: datetime, delay: timedelta) -> Job:
    due_at = now + max(NOTHING, min(delay, job.lifetime))
    reason = clean(failure.message, MAX_REASON)
    return step(job, event, W, now=now, reason=reason, failure=failure, due_at=due_at)


def lease_answered(job: Job) -> Lease | None:
    """Return the lease of a job whose holder has reported: without an end."""
    lease = job.lease
    return Lease(lease.token, lease.version, lease.worker, None) if lease else None


def _noted(job: Job, failure: Failure, now: datetime) -> Failure:
    """Return the failure as it is stored: with time and place, in text that any store accepts."""
    running = job.state is R
    began, lease = job.started_at, job.lease
    return replace(
        failure,
        message=clean(failure.message),
        code=clean(failure.code, MAX_CODE),
        stack_trace=clean(failure.stack_trace),
        context={clean(name): clean(value) for name, value in failure.context.items()},
        attempt=job.attempt,
        at=now,
        duration=failure.duration or (max(NOTHING, now - began) if running and began else None),
        worker=failure.worker or (lease.worker if running and lease else ""),
        host=clean(failure.host),
    )
