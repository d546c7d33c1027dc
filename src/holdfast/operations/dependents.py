"""Letting dependents go: decide what became of what they waited for, and write it."""

from __future__ import annotations

from holdfast.model import lifecycle
from holdfast.model.dependencies import verdict
from holdfast.store import Change, Store

PAGE = 500


async def release_dependents(store: Store) -> int:
    """Decide every waiting job on which a verdict is due; return how many moved.

    Ends propagate: a job that fails here may decide others, so it goes on until none is left.
    """
    moved = 0
    while True:
        has_dependents = await store.dependents(PAGE)
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
            for dependent in has_dependents
        ]
        written = sum(answer.written for answer in await store.swap(changes)) if changes else 0
        moved += written
        if not written:
            return moved
