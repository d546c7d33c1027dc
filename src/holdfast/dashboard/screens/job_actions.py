"""What can be done with one job: retry, cancel, release, delete, change."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from holdfast.dashboard.formats import duration, parse_span
from holdfast.dashboard.visits import Action, ActionDone, Visit, require_found
from holdfast.errors import Fault, ValidationError
from holdfast.model.amendment import JobMetadata
from holdfast.model.results import (
    CancellationStatus,
    DeletionStatus,
    ReleaseStatus,
    RetryStatus,
    UpdateStatus,
)
from holdfast.model.times import parse_timestamp


def delay_of(visit: Visit) -> timedelta:
    """Return the delay that a form gives: ``90``, ``15m``, ``2h``."""
    given = visit.given("delay")
    span = parse_span(given) if given else timedelta(0)
    if span is None:
        message = f"must be like 30s, 15m or 2h, got {given[:40]!r}"
        raise ValidationError([Fault("delay", "INVALID_DURATION", message)])
    return span


async def retry(visit: Visit) -> ActionDone:
    """Run a failed job again."""
    job_id, delay = visit.path["job_id"], delay_of(visit)
    result = await visit.operations.retry(
        job_id,
        reset_attempts=visit.given("reset_attempts") == "1",
        priority=visit.given("priority") or None,
        delay=delay,
    )
    require_found(result, job_id)
    if result.status is RetryStatus.NOT_RETRIABLE:
        return ActionDone(message="Not retried: only a failed job can be retried.", failed=True)
    when = f" in {duration(delay)}" if delay else ""
    return ActionDone(message=f"The job runs again{when}.")


async def cancel(visit: Visit) -> ActionDone:
    """Cancel a job; with force, interrupt it."""
    job_id, force = visit.path["job_id"], visit.given("force") == "1"
    result = await visit.operations.cancel(job_id, reason=visit.given("reason"), force=force)
    require_found(result, job_id)
    match result.status:
        case CancellationStatus.CANCELLED:
            return ActionDone(message="The job is cancelled.")
        case CancellationStatus.CANCEL_REQUESTED if force:
            return ActionDone(message="The worker was asked to interrupt the job.")
        case CancellationStatus.CANCEL_REQUESTED:
            return ActionDone(message="The job was asked to stop at its next checkpoint.")
        case _:
            return ActionDone(message="Not cancelled: the job has ended already.", failed=True)


async def release(visit: Visit) -> ActionDone:
    """Release a held job."""
    job_id = visit.path["job_id"]
    result = await visit.operations.release(job_id)
    require_found(result, job_id)
    if result.status is ReleaseStatus.NOT_HELD:
        return ActionDone(message="Not released: the job is not held.", failed=True)
    return ActionDone(message="The job is released.")


async def delete(visit: Visit) -> ActionDone:
    """Delete an ended job."""
    job_id = visit.path["job_id"]
    result = await visit.operations.delete(job_id)
    require_found(result, job_id)
    match result.status:
        case DeletionStatus.NOT_ENDED:
            return ActionDone(message="Not deleted: the job has not ended.", failed=True)
        case DeletionStatus.NEEDED:
            message = "Not deleted: a job that has not ended depends on it."
            return ActionDone(message=message, failed=True)
        case _:
            return ActionDone(message=f"Job {job_id} is deleted.", to=("jobs",))


async def update(visit: Visit) -> ActionDone:
    """Change the priority of a job while it waits, and when it is due until it is ready."""
    job_id = visit.path["job_id"]
    metadata = {"priority": visit.given("priority") or None, **_due(visit.given("due"))}
    if not any(value is not None for value in metadata.values()):
        return ActionDone(message="Nothing was given to change.", failed=True)
    result = await visit.operations.update(job_id, **cast("JobMetadata", metadata))
    require_found(result, job_id)
    if result.status is not UpdateStatus.UPDATED:
        return ActionDone(message="Not changed: the job does not wait any more.", failed=True)
    return ActionDone(message="The job is changed.")


async def run_now(visit: Visit) -> ActionDone:
    """Let a job that waits for its time be due at once."""
    job_id = visit.path["job_id"]
    result = await visit.operations.update(job_id, delay=0)
    require_found(result, job_id)
    if result.status is not UpdateStatus.UPDATED:
        return ActionDone(message="Not changed: the job does not wait for a time.", failed=True)
    return ActionDone(message="The job is due now.")


def _due(given: str) -> dict[str, object]:
    """Return when a job is due: after a span such as ``15m``, or at an instant."""
    if not given:
        return {}
    span = parse_span(given)
    if span is not None:
        return {"delay": span}
    try:
        return {"scheduled_at": parse_timestamp(given)}
    except ValueError:
        message = f"must be like 15m, 2h, 1d or 2026-11-20T08:00Z, got {given[:40]!r}"
        raise ValidationError([Fault("due", "INVALID", message)]) from None


_JOB = "/jobs/{job_id}"

ACTIONS = (
    Action(path=f"{_JOB}/retry", call="retryJob", run=retry),
    Action(path=f"{_JOB}/cancel", call="cancelJob", run=cancel),
    Action(path=f"{_JOB}/release", call="releaseJob", run=release),
    Action(path=f"{_JOB}/delete", call="deleteJob", run=delete),
    Action(path=f"{_JOB}/update", call="updateJob", run=update),
    Action(path=f"{_JOB}/run", call="updateJob", run=run_now),
)
