"""What a store can do beyond the contract: one value of flags, and four groups of extra verbs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from holdfast.errors import Fault
from holdfast.model.job import Job
from holdfast.model.submission import BULLMQ_QUEUE_RULE, QUEUE_RULE, Parent
from holdfast.store.values import Added, Fence, HeldKey, JobExport, KeyPage


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """How a store works, for callers that can make use of it."""

    groups_commits: bool = False
    """All writes that one turn of the event loop requests share one transaction."""
    parallel_writes: int = 1
    """How many ``add`` calls side by side are faster than one after the other."""
    reads_elsewhere: bool = False
    """Another process reads: a caller that asks for the next page early can compute meanwhile."""
    events_may_lag: bool = False
    """Events may arrive late, while ``ended`` is always current."""
    reserved_queues: frozenset[str] = frozenset()
    """Queues whose names the store needs for itself."""
    bullmq_names: bool = False
    """Queues under the bullmq profile take every name of a queue or job that BullMQ accepts."""
    removes_ended: bool = False
    """Jobs are kept after their end as their ``remove_on_complete`` and ``remove_on_fail`` say."""
    deduplicates: bool = False
    """A job's ``deduplication`` keeps duplicates out of its queue, as in BullMQ."""
    encrypts: bool = False
    """Contents are encrypted: other clients cannot make jobs of them."""
    closes_queues: bool = False
    """``configure`` takes ``closed_for``, a timedelta in which no worker claims from the queue."""
    completes_in_transaction: bool = False
    """``TransactionalStore.transaction`` works: handlers can write and complete at once."""
    size_fault: Callable[[Job, int], Fault | None] | None = None
    """Returns the fault of a job with so many bytes of payload that is too large for the store;
    None: no store limit."""

    @property
    def queue_rule(self) -> re.Pattern[str]:
        """What the name of an existing queue matches."""
        return BULLMQ_QUEUE_RULE if self.bullmq_names else QUEUE_RULE


@runtime_checkable
class PortableStore(Protocol):
    """A whole store: everything in it can move to another one and continue there."""

    async def adopt(self, exports: Sequence[JobExport]) -> list[bool]:
        """Write jobs as they are, in any state, with their history and log lines.

        For moving jobs from another store. False: a job with this id exists and nothing of
        the export was written; each export stands alone. Jobs come in the order of their
        submission, which becomes their order here. Each is linked to those of its
        dependencies that exist, as ``add`` links them, and takes its deduplication key.
        A SCHEDULED job takes its place behind those already SCHEDULED. The history counts as
        if it had happened here, except that the length of attempts is not measured.
        """
        ...

    async def deleted_keys(self, cursor: str | None, limit: int) -> KeyPage:
        """Return some of the keys whose job was deleted and whose window is open.

        A cursor is that of the page before. A page may be empty although others follow.
        """
        ...

    async def adopt_keys(self, keys: Sequence[HeldKey]) -> None:
        """Write keys of deleted jobs; one that exists stays as it is."""
        ...


@runtime_checkable
class PromptStore(Protocol):
    """A store that can write in the thread of its caller: one job takes less than a switch."""

    def add_now(self, job: Job, *, patient: bool = False) -> Added | None:
        """Write a new job, as ``Store.add``, before this call returns.

        None, with nothing written, when ``add`` must do it: while others write, while the store
        is unavailable, and while a write takes longer than an event loop may wait. A ``patient``
        caller blocks only its own thread, and waits for the disk.
        """
        ...


@runtime_checkable
class TransactionalStore(Protocol):
    """A store in the user's own database: it joins transactions of callers and handlers."""

    async def add(
        self,
        jobs: Sequence[Job],
        *,
        atomic: bool = True,
        fence: Fence | None = None,
        connection: object = None,
    ) -> list[Added]:
        """Write new jobs, as ``Store.add``, if and only if the caller's transaction commits.

        The transaction locks no jobs outside of it: new jobs that depend on such jobs are
        linked to them after the commit, by the next ``promote``.
        """
        ...

    async def lineage(self, ids: Sequence[str], connection: object) -> dict[str, Parent]:
        """Return what new jobs inherit from their dependencies, as the caller sees these."""
        ...

    def transaction(
        self, fence: Fence, decide: Callable[[Job], Job], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        """Lend a connection whose commit also writes what ``decide`` makes of the leased job.

        A lease that is no longer the newest raises ``StaleLeaseError`` and rolls back. Errors
        of the block pass unchanged. ``blocking``: a connection for plain functions in another
        thread; a caller cancelled inside the block leaves the connection to that thread, cut
        off from the server.
        """
        ...


class SchemaStatus(msgspec.Struct, frozen=True):
    """Which migrations a store has, and which known ones it lacks."""

    version: int
    """The newest one applied; 0 without a schema."""
    applied: list[str]
    pending: list[str]


class SchemaMove(msgspec.Struct, frozen=True):
    """The migrations that brought a schema to a version, in the order they ran."""

    up: list[str]
    down: list[str]


@runtime_checkable
class VersionedStore(Protocol):
    """A store whose schema has numbered versions; it must be closed for both calls."""

    async def schema(self) -> SchemaStatus:
        """Return the version of the schema. Changes nothing and works without a schema."""
        ...

    async def migrate(self, to: int | None = None, *, lose: bool = False) -> SchemaMove:
        """Bring the schema to a version, by default the newest.

        A step back that loses data raises ``ValidationError`` unless ``lose``. Programs of a
        later version must have stopped before.
        """
        ...
