"""Releasing dependents: decide by what became of their dependencies, and write it."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import lifecycle
from holdfast.model.dependencies import verdict
from holdfast.model.job import Job
from holdfast.operations.quarantine import swap_each
from holdfast.store import Change, Dependent, Store

PAGE = 500


async def release_dependents(store: Store) -> int:
    """Decide every waiting job on which a verdict is due; return how many changed.

    Failures propagate: a job that fails here may decide others, so it repeats until none is left.
    """
    released = 0
    while True:
        due = await store.dependents(PAGE)
        changes = [Change(one.job, _decided(one, store.now())) for one in due]
        answers = await swap_each(store, changes)
        written = sum(answer is not None and answer.written for answer in answers)
        released += written
        if not written:
            return released


def _decided(dependent: Dependent, now: datetime) -> Job:
    job = dependent.job
    return lifecycle.dependency_ended(job, verdict(job.dependency_kind, dependent.parents), now=now)
