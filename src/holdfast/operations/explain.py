"""Explains why a job is not running: one sentence, and the facts behind it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from holdfast.model.dependencies import end_on_retry
from holdfast.model.job import TERMINAL, CancelRequest, DamagedJob, Job, State, read_extra
from holdfast.model.queues import QueuePause
from holdfast.model.times import format_timestamp
from holdfast.model.versions import awaits_version
from holdfast.model.workers import WorkerInfo
from holdfast.operations.origins import JobSettings, job_settings
from holdfast.operations.pauses import with_pauses
from holdfast.operations.quarantine import failing
from holdfast.operations.workers import is_led, workers
from holdfast.store import LimitState, Store

UNSAID = "cancelled"
"""The reason that a request without one records; test_explain fails if it changes."""


class Cause(StrEnum):
    """Why a job is not running now."""

    ENDED = "ENDED"
    RUNNING = "RUNNING"
    LEASE_EXPIRED = "LEASE_EXPIRED"
    HELD = "HELD"
    DEPENDENCY = "DEPENDENCY"
    DELAYED = "DELAYED"
    BACKING_OFF = "BACKING_OFF"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    LIMIT_REACHED = "LIMIT_REACHED"
    OTHER_VERSION = "OTHER_VERSION"
    NO_WORKER = "NO_WORKER"
    READY = "READY"
    DAMAGED = "DAMAGED"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A cause for programs, a sentence for people, the facts for both."""

    job_id: str
    state: State
    cause: Cause
    message: str
    details: Mapping[str, object] = {}
    settings: JobSettings = JobSettings()
    """What governs the job, and where that comes from."""


async def explain(store: Store, job: Job) -> Explanation:
    """Explain why a job is not running now."""
    if isinstance(job, DamagedJob) and job.state not in TERMINAL:
        cause, message, details = _damaged(job)
    else:
        cause, message, details = await _reason(store, job)
    return Explanation(
        job_id=job.id,
        state=job.state,
        cause=cause,
        message=message,
        details=details,
        settings=await job_settings(store, job),
    )


Reason = tuple[Cause, str, dict[str, object]]


async def _reason(store: Store, job: Job) -> Reason:
    if job.state in TERMINAL:
        return _ended(job)
    match job.state:
        case State.RUNNING:
            return await _running(store, job)
        case State.PENDING:
            return await _pending(store, job)
        case State.DELAYED:
            return await _later(store, job, Cause.DELAYED, "it waits for its time")
        case State.RETRYING:
            return await _retrying(store, job)
        case _:
            return await _ready(store, job)


async def _retrying(store: Store, job: Job) -> Reason:
    if awaits_version(job):
        return await _mismatched(store, job)
    message = f"it waits for its next attempt after {str(job.failure or 'a failure')!r}"
    return await _later(store, job, Cause.BACKING_OFF, message)


async def _mismatched(store: Store, job: Job) -> Reason:
    """A payload that the workers of this version cannot read."""
    assert job.failure is not None
    present = {w.id: w.app_version for w in await workers(store) if w.serves(job.queue, job.type)}
    when = format_timestamp(job.due_at) if job.due_at else "now"
    details: dict[str, object] = {
        "due_at": when,
        "reason": job.failure.message,
        "refused_by": job.failure.worker,
        "workers": present,
        "task_version": read_extra(job.extra).version,
        "waits_until": format_timestamp(job.expires_at),
    }
    claims = job.lease_version - job.attempt
    often = f", the last of {claims} that returned it" if claims > 1 else ""
    message = (
        f"it waits for a worker of another version: {job.failure.message}"
        f" (in worker {job.failure.worker}{often}); the next try is at {when}"
    )
    return Cause.OTHER_VERSION, message, details


def _damaged(job: DamagedJob) -> Reason:
    message = f"it cannot be read, and fails when a worker claims it: {job.damage}"
    return Cause.DAMAGED, message, {"damage": job.damage}


def _ended(job: Job) -> Reason:
    when = format_timestamp(job.finished_at) if job.finished_at else "an unknown time"
    why = f": {job.failure}" if job.failure else ""
    return Cause.ENDED, f"it ended {job.state} at {when}{why}", {"finished_at": when}


async def _running(store: Store, job: Job) -> Reason:
    assert job.lease is not None
    worker = job.lease.worker
    until = format_timestamp(job.lease.until) if job.lease.until else ""
    details: dict[str, object] = {
        "worker": worker,
        "lease_until": until,
        "attempt": job.attempt,
        "cancel_requested": job.cancel is not None,
    }
    if job.lease.until is not None and job.lease.until <= store.now():
        message = f"its lease expired at {until} in worker {worker}; it will be reclaimed"
        return await _shortly(store, Cause.LEASE_EXPIRED, message, details)
    held = f"worker {worker} holds the lease until {until}"
    if job.cancel is None:
        return Cause.RUNNING, f"it is running: {held}", details
    return Cause.RUNNING, f"it is running, and {_stopping(job.cancel, details)}: {held}", details


def _stopping(asked: CancelRequest, details: dict[str, object]) -> str:
    """Say that a running job was asked to stop, and note it in the details."""
    when = format_timestamp(asked.at)
    details |= {"cancel_at": when, "cancel_reason": asked.reason, "cancel_force": asked.force}
    why = f" ({asked.reason})" if asked.reason != UNSAID else ""
    if asked.force:
        return f"its worker was asked at {when} to interrupt it{why}, and has not yet"
    return f"was asked at {when} to stop{why}, and has not reached a checkpoint yet"


async def _pending(store: Store, job: Job) -> Reason:
    if job.held:
        return Cause.HELD, "it is held until it is released", {}
    parents = await store.get(await store.parents(job.id))
    waiting = [p for p in parents if p is not None and _is_awaited(job, p)]
    details: dict[str, object] = {
        "kind": job.dependency_kind,
        "waiting_for": {p.id: p.state for p in waiting[:100]},
        "open": len(waiting),
    }
    if not waiting:
        message = "all jobs it waited for have ended; it will be released"
        return await _shortly(store, Cause.DEPENDENCY, message, details)
    first = waiting[0]
    more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    spawned = "it spawned and which " if first.spawned_by == job.id else ""
    message = f"it waits for {first.type} job {first.id}, which {spawned}is {first.state}{more}"
    if first.state in TERMINAL:
        message = f"{message}: retry that job, or cancel this one"
    return Cause.DEPENDENCY, message, details


def _is_awaited(job: Job, parent: Job) -> bool:
    """Whether a waiting job waits for another; when retried, for one that failed before, too."""
    ended = parent.finished_at
    if ended is None or job.generation == 1 or ended > job.updated_at:
        return ended is None
    return end_on_retry(job.dependency_kind, parent.state) is None


async def _later(store: Store, job: Job, cause: Cause, message: str) -> Reason:
    when = format_timestamp(job.due_at) if job.due_at else "now"
    details: dict[str, object] = {"due_at": when, "attempt": job.attempt}
    if job.due_at is None or job.due_at > store.now():
        return cause, f"{message}, due at {when}", details
    return await _shortly(store, cause, f"it was due at {when}; it will be made ready", details)


async def _shortly(store: Store, cause: Cause, message: str, details: dict[str, object]) -> Reason:
    """Add when maintenance will do something: shortly, or not before a worker leads it."""
    if await is_led(store):
        if broken := await failing(store):
            names = ", ".join(f"{report.name} ({report.error})" for report in broken)
            return cause, f"{message} when maintenance works again: failing are {names}", details
        return cause, f"{message} shortly", details
    if any(not worker.is_remote for worker in await workers(store)):
        # A leader that was busy for a second has lost its term until it asks again.
        message = f"{message} when a worker leads maintenance: none does at this moment"
        return cause, message, details
    message = f"{message} when a worker leads maintenance: none is running"
    return Cause.NO_WORKER, message, details


async def _ready(store: Store, job: Job) -> Reason:
    for queue in await store.queues():
        if queue.name == job.queue and queue.paused:
            (paused,) = await with_pauses(store, [queue])
            return _paused(job.queue, paused.pause)
    present = await workers(store)
    able = [w for w in present if w.serves(job.queue, job.type)]
    if not able:
        return _no_worker(job, present)
    claiming = [w for w in able if not w.draining]
    if not claiming:
        return _drained(able)
    for limit in await store.limits():
        if _covers(limit, job) and (message := _exhausted(limit)):
            return Cause.LIMIT_REACHED, message, {"scope": limit.scope}
    free = sum(max(0, w.slots - w.running) for w in claiming)
    message = f"it is ready to run: {len(claiming)} worker(s) can claim it"
    details: dict[str, object] = {"workers": [w.id for w in claiming], "free_slots": free}
    return Cause.READY, f"{message}, {free} slot(s) were free", details


def _drained(able: list[WorkerInfo]) -> Reason:
    who = "the worker that serves it drains, and so claims no jobs"
    if len(able) > 1:
        who = f"all {len(able)} workers that serve it drain, and so claim no jobs"
    message = f"{who}: start another, or undrain one: holdfast workers undrain {able[0].id}"
    return Cause.NO_WORKER, message, {"draining": [w.id for w in able]}


def _paused(queue: str, pause: QueuePause | None) -> Reason:
    message, details = f"queue {queue!r} is paused", dict[str, object](queue=queue)
    if pause is not None:
        by = f" by {pause.by}" if pause.by else ""
        until = f" until {format_timestamp(pause.until)}" if pause.until else ""
        reason = f": {pause.reason}" if pause.reason else ""
        message += f"{by} since {format_timestamp(pause.at)}{until}{reason}"
        details["pause"] = pause
    return Cause.QUEUE_PAUSED, message, details


def _no_worker(job: Job, present: list[WorkerInfo]) -> Reason:
    details: dict[str, object] = {
        "workers": {w.id: {"queues": w.queues, "types": w.types} for w in present}
    }
    if not present:
        return Cause.NO_WORKER, "no worker is running", details
    if not any(job.queue in w.queues for w in present):
        served = sorted({queue for w in present for queue in w.queues})
        message = f"no live worker serves queue {job.queue!r} (served: {', '.join(served)})"
        return Cause.NO_WORKER, message, details
    known = sorted({type_ for w in present if job.queue in w.queues for type_ in w.types})
    message = (
        f"no live worker of queue {job.queue!r} has a handler for {job.type!r}"
        f" (known: {', '.join(known) or 'none'})"
    )
    return Cause.NO_WORKER, message, details


def _covers(limit: LimitState, job: Job) -> bool:
    scopes = {f"queue:{job.queue}", f"task:{job.type}"}
    if job.limit_key:
        scopes.add(f"key:{job.type}:{job.limit_key}")
    return limit.scope in scopes


def _exhausted(limit: LimitState) -> str:
    rule = limit.rule
    if rule.concurrency is not None and limit.running >= rule.concurrency:
        return f"{limit.scope} already runs {limit.running} of {rule.concurrency} allowed at once"
    if limit.is_rate_used_up and limit.until is not None:
        return (
            f"{limit.scope} lets {rule.rate} start per {rule.per.total_seconds():g} s,"
            f" {rule.burst} at once; the next from {format_timestamp(limit.until)}"
        )
    return ""
