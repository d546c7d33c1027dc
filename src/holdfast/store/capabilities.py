"""What a store may be or do beyond the contract, for others to make use of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from holdfast.model.job import Job
from holdfast.model.submission import Parent
from holdfast.store.values import Added, Fence, JobExport


@runtime_checkable
class GroupCommitStore(Protocol):
    """A store that writes whatever one turn of the event loop asks for in one transaction."""

    GROUPS_COMMITS: bool


@runtime_checkable
class LanedStore(Protocol):
    """A store that writes several groups of jobs faster side by side than one after the other."""

    LANES: int


@runtime_checkable
class LateStore(Protocol):
    """A store that may tell of events late, but knows at once what it is asked."""

    async def ended(self, ids: Sequence[str]) -> set[str]:
        """Return those of these jobs that have ended; a cheap read for whoever waits."""
        ...


@runtime_checkable
class ListeningStore(Protocol):
    """A store that is told of new work, and looks for it now and then when that fails."""

    @property
    def not_notified_because(self) -> str:
        """Why it is not told just now; empty when it is, or when nobody wants to be."""
        ...


@runtime_checkable
class ListingStore(Protocol):
    """A store that is not one tenant's view: it can say of what it holds records."""

    async def kinds(self) -> list[str]:
        """Return the kinds of which there are records, by code points."""
        ...


@runtime_checkable
class PortableStore(ListingStore, Protocol):
    """A whole store: everything in it can be taken to another one and go on there."""

    async def adopt(self, dossiers: Sequence[JobExport]) -> list[bool]:
        """Write jobs as they are, whatever their state, with their history and log lines.

        For moving jobs from another store. False: a job with this id was there, nothing of
        the dossier was written; each dossier stands alone. Jobs come in the order of their
        submission, which becomes their order here. Each is linked to those of its
        dependencies that are there, as ``add`` links them, and takes its deduplication key.
        A SCHEDULED job takes its place behind those that are there. The history counts as if
        it had happened here, except that how long attempts took is not measured.
        """
        ...


@runtime_checkable
class TransactionalStore(Protocol):
    """A store in the caller's own database: it can join the caller's transactions."""

    async def add(
        self,
        jobs: Sequence[Job],
        *,
        atomic: bool = True,
        fence: Fence | None = None,
        connection: object = None,
    ) -> list[Added]:
        """Write new jobs, as ``Store.add``, if and only if the caller's transaction commits.

        Jobs outside of that transaction are not locked by it: those that depend on them are
        joined to them after it has committed, by whoever promotes.
        """
        ...

    async def lineage(self, ids: Sequence[str], connection: object) -> dict[str, Parent]:
        """Return what new jobs inherit of those they depend on, as the caller sees these."""
        ...


@runtime_checkable
class CompletingStore(Protocol):
    """A store that can end a job in the transaction in which its handler writes."""

    def transaction(
        self, fence: Fence, decide: Callable[[Job], Job], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        """Lend a connection whose commit also writes what ``decide`` makes of the leased job.

        A lease that is no longer the newest raises ``StaleLeaseError`` and rolls back. What the
        block raises passes as it is. ``blocking``: one for plain functions in another thread;
        whoever is cancelled inside the block leaves it to that thread, cut off from the server.
        """
        ...


@runtime_checkable
class SharedStore(TransactionalStore, CompletingStore, Protocol):
    """A store in the user's own database, whole."""


class SchemaStatus(msgspec.Struct, frozen=True):
    """Which migrations a store has, and which of those that this program knows it lacks."""

    version: int
    """The newest it has; 0 when there is nothing."""
    applied: list[str]
    pending: list[str]


class SchemaMove(msgspec.Struct, frozen=True):
    """What was done to bring a schema to a version, in this order."""

    up: list[str]
    down: list[str]


@runtime_checkable
class VersionedStore(Protocol):
    """A store whose schema has numbered versions. Both calls want it closed, or not yet open."""

    async def schema(self) -> SchemaStatus:
        """Say which version the schema has. Changes nothing, and needs no schema to be there."""
        ...

    async def migrate(self, to: int | None = None, *, lose: bool = False) -> SchemaMove:
        """Bring the schema to a version, by default the newest.

        Going back where that loses data raises ``ValidationError`` unless ``lose``. Programs of a
        later version must have stopped before.
        """
        ...
