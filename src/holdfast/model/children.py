"""A running job that waits for the jobs it spawned: RUNNING -> PENDING, without an attempt used.

The job gives up its lease and runs again, from the start of its handler, when its children have
ended. ``dependency_kind`` says from then on how it waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.dependencies import verdict
from holdfast.model.job import DependencyKind, Event, Failure, Job, State
from holdfast.model.lifecycle import cancelled, lease_answered, lifetime_over, step

UNCOUNTED = frozenset({Event.GIVE_BACK, Event.WAIT})
"""The events that end a run without using up an attempt."""

CHILD_KINDS = (DependencyKind.AFTER_ALL, DependencyKind.AFTER)
"""How a job may wait for its children: for every end, or only for completion."""


class ChildJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the running one spawned, after its end."""

    job_id: str
    type: str
    state: State
    result: object = None
    """What it returned; None unless it completed. As JSON until a handler receives it."""
    failure: Failure | None = None
    """Why it did not complete."""


def child_job(job: Job) -> ChildJob:
    """Return a spawned job as its spawner sees it."""
    return ChildJob(
        job_id=job.id, type=job.type, state=job.state, result=job.result, failure=job.failure
    )


def checked_kind(kind: DependencyKind | str) -> DependencyKind:
    """Return how to wait for children. Raises ``ValidationError`` for another value."""
    if kind not in CHILD_KINDS:
        rule = f"must be one of {', '.join(CHILD_KINDS)}, got {kind!r:.60}"
        raise ValidationError([Fault("kind", "INVALID", rule)])
    return DependencyKind(kind)


def must_wait(kind: DependencyKind, children: Iterable[ChildJob]) -> bool:
    """Whether a job has to wait for its children, or ends like one that did not complete."""
    states = [(child.job_id, child.state) for child in children]
    return verdict(kind, states).outcome is not State.SCHEDULED


def waiting(job: Job, kind: DependencyKind, *, now: datetime) -> Job:
    """RUNNING -> PENDING until the jobs it has spawned have ended."""
    if job.cancel is not None:
        return cancelled(msgspec.structs.replace(job, lease=lease_answered(job)), now=now)
    if now >= job.expires_at:
        return lifetime_over(msgspec.structs.replace(job, lease=lease_answered(job)), now=now)
    return step(
        job,
        Event.WAIT,
        State.PENDING,
        now=now,
        reason="waits for the jobs it spawned",
        attempt=job.attempt - 1,
        dependency_kind=kind,
        due_at=None,
        lease=lease_answered(job),
    )
