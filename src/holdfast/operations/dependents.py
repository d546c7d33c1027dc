"""Releasing dependents: decide by what became of their dependencies, and write it."""

from __future__ import annotations

from holdfast.model import lifecycle
from holdfast.model.dependencies import verdict
from holdfast.store import Change, Store

PAGE = 500


async def release_dependents(store: Store) -> int:
    """Decide every waiting job on which a verdict is due; return how many changed.

    Failures propagate: a job that fails here may decide others, so it repeats until none is left.
    """
    released = 0
    while True:
        due = await store.dependents(PAGE)
        now = store.now()
        changes = [
            Change(
                dependent.job,
                lifecycle.dependency_ended(
                    dependent.job,
                    verdict(dependent.job.dependency_kind, dependent.parents),
                    now=now,
                ),
            )
            for dependent in due
        ]
        written = sum(answer.written for answer in await store.swap(changes)) if changes else 0
        released += written
        if not written:
            return released
