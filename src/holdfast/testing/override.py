"""Replaces the store, clock and randomness of an app for the time of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager

from holdfast.app import Holdfast
from holdfast.model.job import Job
from holdfast.model.submission import Parent
from holdfast.operations.sync import SyncOperations
from holdfast.runtime.clock import Clock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Added, Fence, MemoryStore, Store
from holdfast.store.urls import is_postgres
from holdfast.tasks.transactions import no_transaction

REPLACED = ("clock", "randomness", "_own_store", "_operations", "_loop", "_users", "_sync")


@contextmanager
def overridden(
    app: Holdfast, store: Store, clock: Clock, randomness: Randomness, sync: SyncOperations
) -> Iterator[None]:
    """Replace what an app uses, started or not, and restore it afterwards."""
    saved = {name: getattr(app, name) for name in REPLACED}
    app.clock, app.randomness = clock, randomness
    use_store(app, store)
    app._sync = sync
    app._users = 1
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(app, name, value)


def use_store(app: Holdfast, store: Store) -> None:
    """Make an overridden app use a store, as in a new process."""
    app._own_store = store
    app._operations = app.over(store)


def sandbox_store(app: Holdfast, clock: Clock) -> MemoryStore:
    """Return a store in memory that accepts what the app's own store would accept."""
    if is_postgres(app.url):
        return ConnectionIgnoringStore(clock)
    return MemoryStore(clock)


class ConnectionIgnoringStore(MemoryStore):
    """Adds jobs with ``connection=`` at once, whether or not the transaction commits."""

    async def add(
        self,
        jobs: Sequence[Job],
        *,
        atomic: bool = True,
        fence: Fence | None = None,
        connection: object = None,  # its transaction is ignored
    ) -> list[Added]:
        """Add new jobs."""
        return await super().add(jobs, atomic=atomic, fence=fence)

    async def lineage(self, ids: Sequence[str], connection: object) -> dict[str, Parent]:
        """Return what new jobs inherit from their dependencies."""
        found = await self.get(ids)
        return {job.id: Parent(job.priority, job.depth) for job in found if job is not None}

    def transaction(
        self, fence: Fence, decide: Callable[[Job], Job], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        """Refuse: there is no database to write to."""
        raise no_transaction("needs a worker whose store shares your database: postgresql://")
