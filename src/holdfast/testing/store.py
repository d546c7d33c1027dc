"""Where a sandbox keeps jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.app import Holdfast
from holdfast.model.job import Job
from holdfast.model.submission import Parent
from holdfast.runtime.clock import Clock
from holdfast.store import Added, Fence, MemoryStore
from holdfast.store.urls import is_postgres


def sandbox_store(app: Holdfast, clock: Clock) -> MemoryStore:
    """Return a store in memory that takes what the app's own store would take."""
    if is_postgres(app.url):
        return CarelessStore(clock)
    return MemoryStore(clock)


class CarelessStore(MemoryStore):
    """Takes jobs that are submitted in a caller's transaction at once, whatever becomes of it."""

    async def add(
        self,
        jobs: Sequence[Job],
        *,
        atomic: bool = True,
        fence: Fence | None = None,
        connection: object = None,  # its transaction is not ours to follow
    ) -> list[Added]:
        """Write new jobs."""
        return await super().add(jobs, atomic=atomic, fence=fence)

    async def lineage(self, ids: Sequence[str], connection: object) -> dict[str, Parent]:
        """Return what new jobs inherit of those they depend on."""
        found = await self.get(ids)
        return {job.id: Parent(job.priority, job.depth) for job in found if job is not None}
