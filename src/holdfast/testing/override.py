"""Putting another store, clock and chance under an app for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.app import Holdfast
from holdfast.model.job import Job
from holdfast.model.submission import Parent
from holdfast.operations.sync import SyncOperations
from holdfast.runtime.clock import Clock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Added, Fence, MemoryStore, Store
from holdfast.store.urls import is_postgres

BORROWED = ("clock", "randomness", "_own_store", "_operations", "_loop", "_users", "_sync")


@contextmanager
def borrowed(
    app: Holdfast, store: Store, clock: Clock, randomness: Randomness, sync: SyncOperations
) -> Iterator[None]:
    """Let an app, which may be started or not, stand on something else; then give it back."""
    saved = {name: getattr(app, name) for name in BORROWED}
    app.clock, app.randomness = clock, randomness
    put_under(app, store)
    app._sync = sync
    app._users = 1
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(app, name, value)


def put_under(app: Holdfast, store: Store) -> None:
    """Let a borrowed app go on over a store, as a new process would."""
    app._own_store = store
    app._operations = app.over(store)


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
