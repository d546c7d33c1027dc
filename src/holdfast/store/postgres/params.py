"""The parameters of statements: one column per field, one element per job or transition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from holdfast.model.job import DependencyKind, Event, Job, State, Transition
from holdfast.store.postgres.arrays import (
    Blobs,
    Column,
    Documents,
    Flags,
    Floats,
    Ints,
    Longs,
    Moments,
    Texts,
    text,
)
from holdfast.store.postgres.rows import document, policy_json
from holdfast.store.values import Change

Columns = dict[str, object]
T = TypeVar("T")

_names: Mapping[str, str] = {name: name.value for name in (*State, *Event)}
"""Enums as plain strings: reading ``.value`` runs Python code each time."""


def add_params(jobs: Sequence[Job]) -> Columns:
    """Return the columns of ``add.sql``; jobs that are alike are read once."""
    read = jobs[:1] if _are_alike(jobs) else jobs
    times = len(jobs) // len(read)
    steps = [_last_step(job) for job in read]
    return {
        "id": Texts([j.id for j in jobs]),
        "payload": Blobs([j.payload for j in jobs]),
        "tags": Documents([document(j.tags or None) for j in read] * times),
        "correlation_id": Texts([j.correlation_id or None for j in read] * times),
        "callback_url": Texts([j.callback_url or None for j in read] * times),
        "limit_key": Texts([j.limit_key or None for j in read] * times),
        "dedupe": Documents([document(j.dedupe) for j in read] * times),
        "depends_on": Texts([literal(j.depends_on) for j in read] * times),
        "dependency_kind": Texts([kind_value(j) for j in read] * times),
        "spawned_by": Texts([j.spawned_by or None for j in read] * times),
        "extra": Blobs([j.extra for j in read] * times),
        **_shared("type", Texts, [j.type for j in read]),
        **_shared("queue", Texts, [j.queue for j in read]),
        **_shared("policy", Texts, [policy_json(j).decode() for j in read]),
        **_shared("lease_ttl", Floats, [j.lease_ttl.total_seconds() for j in read]),
        **_shared("created_at", Moments, [j.created_at for j in read]),
        **_shared("depth", Ints, [j.depth for j in read]),
        **_shared("state", Texts, [_names[j.state] for j in read]),
        **_shared("revision", Ints, [j.revision for j in read]),
        **_shared("priority", Ints, [int(j.priority) for j in read]),
        **_shared("max_attempts", Ints, [j.max_attempts for j in read]),
        **_shared("held", Flags, [j.held for j in read]),
        **_shared("due_at", Moments, [j.due_at for j in read]),
        **_shared("scheduled_at", Moments, [j.scheduled_at for j in read]),
        **_shared("expires_at", Moments, [j.expires_at for j in read]),
        **_shared("event", Texts, [_names[step.event] for step in steps]),
        **_shared("reason", Texts, [step.reason for step in steps]),
    }


_OTHER_FIELDS = attrgetter(*(set(Job.__struct_fields__) - {"id", "payload"}))


def _are_alike(jobs: Sequence[Job]) -> bool:
    """Whether they differ in their id and payload only, as most jobs of a call do."""
    fields = list(map(_OTHER_FIELDS, jobs))
    return fields.count(fields[0]) == len(fields)


def _shared(name: str, kind: type[Column[T]], values: Sequence[T | None]) -> Columns:
    """Return a column, or an empty one and a single value if all jobs have the same."""
    if values.count(values[0]) == len(values):
        return {name: kind(()), f"one_{name}": values[0]}
    return {name: kind(values), f"one_{name}": None}


def add_one_params(job: Job) -> Columns:
    """Return the values of ``add_one.sql``."""
    step = _last_step(job)
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "payload": job.payload,
        "policy": policy_json(job).decode(),
        "lease_ttl": job.lease_ttl.total_seconds(),
        "created_at": job.created_at,
        "tags": tags.decode() if (tags := document(job.tags or None)) else None,
        "correlation_id": job.correlation_id or None,
        "callback_url": job.callback_url or None,
        "limit_key": job.limit_key or None,
        "dependency_kind": kind_value(job),
        "depth": job.depth,
        "extra": job.extra,
        "state": _names[job.state],
        "revision": job.revision,
        "priority": int(job.priority),
        "max_attempts": job.max_attempts,
        "held": job.held,
        "due_at": job.due_at,
        "scheduled_at": job.scheduled_at,
        "expires_at": job.expires_at,
        "event": _names[step.event],
        "reason": step.reason,
    }


def swap_params(changes: Sequence[Change]) -> Columns:
    """Return the columns of ``swap.sql``."""
    after = [change.after for change in changes]
    leases = [job.lease for job in after]
    failures = [job.failure for job in after]
    return {
        "id": Texts([c.before.id for c in changes]),
        "was": Ints([c.before.revision for c in changes]),
        "token": Texts([_token(c) for c in changes]),
        "until": Moments([c.until for c in changes]),
        "enters": Flags([_enters(c) for c in changes]),
        "moved": Flags([bool(j.trail) for j in after]),
        "state": Texts([j.state for j in after]),
        "revision": Ints([j.revision for j in after]),
        "priority": Ints([j.priority for j in after]),
        "max_attempts": Ints([j.max_attempts for j in after]),
        "attempt": Ints([j.attempt for j in after]),
        "generation": Ints([j.generation for j in after]),
        "held": Flags([j.held for j in after]),
        "updated_at": Moments([j.updated_at for j in after]),
        "due_at": Moments([j.due_at for j in after]),
        "scheduled_at": Moments([j.scheduled_at for j in after]),
        "started_at": Moments([j.started_at for j in after]),
        "finished_at": Moments([j.finished_at for j in after]),
        "expires_at": Moments([j.expires_at for j in after]),
        "lease_token": Texts([lease.token if lease else None for lease in leases]),
        "lease_version": Ints([lease.version if lease else 0 for lease in leases]),
        "lease_worker": Texts([lease.worker if lease else None for lease in leases]),
        "lease_until": Moments([lease.until if lease else None for lease in leases]),
        "cancel": Documents([document(j.cancel) for j in after]),
        "failure": Documents([document(f) for f in failures]),
        "failed_at": Moments([f.at if f else None for f in failures]),
        "failure_category": Texts([f.category if f else None for f in failures]),
        "failure_code": Texts([f.code if f else None for f in failures]),
        "result": Blobs([j.result for j in after]),
        "was_state": Texts([c.before.state for c in changes]),
        "was_priority": Ints([c.before.priority for c in changes]),
        "was_category": Texts([f.category if (f := c.before.failure) else None for c in changes]),
        "was_code": Texts([f.code if (f := c.before.failure) else None for c in changes]),
        "trail": Documents([document([_transition(e) for e in j.trail]) for j in after]),
    }


def complete_params(changes: Sequence[Change], numbers: Mapping[str, int]) -> Columns:
    """Return the columns of ``complete.sql``; a known number saves the lookup of the id."""
    ids = [c.before.id for c in changes]
    known = [numbers.get(id_) for id_ in ids]
    was, revisions = _unusual([c.before.revision for c in changes])
    token, tokens = _unusual([_token(c) for c in changes])
    at, times = _unusual([c.after.updated_at for c in changes])
    return {
        "number": Longs(known),
        "id": Texts([id_ if n is None else None for id_, n in zip(ids, known, strict=True)]),
        "was": Ints(revisions),
        "usual_was": was,
        "token": Texts(tokens),
        "usual_token": token,
        "at": Moments(times),
        "usual_at": at,
        "result": Blobs([c.after.result for c in changes]),
    }


def _unusual(values: Sequence[T | None]) -> tuple[T | None, list[T | None]]:
    """Return the first value, and only the values that differ from it: most of them do not."""
    usual = values[0]
    return usual, [None if value == usual else value for value in values]


def is_completion(change: Change) -> bool:
    """Whether a change is ``lifecycle.completed`` and nothing else."""
    before, after, trail = change.before, change.after, change.after.trail
    if len(trail) != 1 or trail[0].event is not Event.COMPLETE or change.until is not None:
        return False
    old, new = before.lease, after.lease
    return (
        old is not None
        and new is not None
        and before.priority == after.priority
        and before.max_attempts == after.max_attempts
        and old.version == new.version
        and before.cancel is after.cancel
        and after.failure is None
        and after.finished_at == after.updated_at
        and after.revision == before.revision + 1
        and trail[0].reason == "handler returned"
    )


def _last_step(job: Job) -> Transition:
    """Return the submission of a new job, or the transition that followed it at once."""
    submission, *later = job.trail
    if submission.event is not Event.SUBMIT or len(later) > 1:
        raise ValueError(f"job {job.id} is not new: {[edge.event for edge in job.trail]}")
    if not later:
        return submission
    if later[0].at != job.created_at:
        raise ValueError(f"job {job.id} changed its state after it was submitted")
    return later[0]


def _transition(edge: Transition) -> dict[str, object]:
    """Return a transition as ``swap.sql`` reads it."""
    return {
        "at": edge.at,
        "from_state": edge.from_state,
        "to_state": edge.to_state,
        "event": edge.event,
        "reason": text(edge.reason).decode(),
        "attempt": edge.attempt,
        "lease_version": edge.lease_version,
        "worker": text(edge.worker).decode(),
        "failure": edge.failure,
    }


def _token(change: Change) -> str | None:
    before, after = change.before.lease, change.after.lease
    return before.token if before and after else None


def _enters(change: Change) -> bool:
    return change.after.state is State.SCHEDULED and (
        bool(change.after.trail) or change.before.state is not State.SCHEDULED
    )


def kind_value(job: Job) -> str | None:
    """Return how a job waits, as stored."""
    kind = job.dependency_kind
    return None if kind is DependencyKind.AFTER else kind.value


def literal(values: Sequence[str]) -> str | None:
    """Return an array as PostgreSQL's array literal, for an element of an array column."""
    if not values:
        return None
    quoted = (v.replace("\\", "\\\\").replace('"', '\\"') for v in values)
    return "{" + ",".join(f'"{v}"' for v in quoted) + "}"
