"""The verbs of the PostgreSQL store: each is one statement, or one short transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Self

from holdfast.model.job import CancelRequest, Job, LogLine, Transition
from holdfast.model.measures import Stats, StatsWindow
from holdfast.model.policy import Retention
from holdfast.model.submission import Parent
from holdfast.runtime.clock import Clock
from holdfast.store.capabilities import Capabilities, SchemaMove, SchemaStatus
from holdfast.store.contract import EVENTS_KEPT
from holdfast.store.postgres import (
    add,
    amend,
    caller,
    claim,
    health,
    keys,
    limits,
    maintain,
    migrate,
    read,
    records,
    swap,
    transactions,
)
from holdfast.store.postgres.search import failures, find
from holdfast.store.postgres.settings import PostgresSettings
from holdfast.store.postgres.state import StoreState
from holdfast.store.postgres.transactions import BorrowedConnection, HandlerPool
from holdfast.store.queue_settings import check_settings
from holdfast.store.values import (
    Added,
    Change,
    Claim,
    Dependent,
    EventPage,
    FailurePage,
    FailureSearch,
    Fence,
    Finding,
    HeldKey,
    JobExport,
    JobNote,
    KeyPage,
    LimitRule,
    LimitState,
    NamedLock,
    Page,
    Promoted,
    QueueInfo,
    Record,
    RecordWrite,
    Renewal,
    Search,
    Swapped,
)


class PostgresStore:
    """Jobs in a schema of a PostgreSQL database; see ``Store`` for what each verb promises.

    ``add``, ``claim`` and ``swap`` return the coroutine of the function behind them: one frame
    less on the three calls that every job makes.
    """

    # Two at once: while the server writes one group of jobs, the next one is read and packed.
    capabilities = Capabilities(
        parallel_writes=2,
        reads_elsewhere=True,
        events_may_lag=True,
        completes_in_transaction=True,
    )

    def __init__(
        self,
        settings: PostgresSettings,
        *,
        clock: Clock | None = None,
        events_kept: int = EVENTS_KEPT,
    ) -> None:
        self.settings = settings
        self._state = StoreState(settings, clock, events_kept)
        self._handlers = HandlerPool(self._state.pool, settings)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        """Make a store from ``postgresql://...``; see ``PostgresSettings`` for its parameters."""
        return cls(PostgresSettings.from_url(url), clock=clock)

    def now(self) -> datetime:
        return self._state.now()

    async def refresh(self) -> None:
        await self._state.refresh()

    async def start(self) -> Self:
        state = self._state
        await migrate.prepare(state.pool, self.settings)
        await state.pool.open()
        await state.check_clock()
        if state.restoring is not None:
            await asyncio.wait([state.restoring])
        state.wake.start()
        return self

    async def close(self) -> None:
        state = self._state
        await state.wake.stop()
        if state.restoring is not None:
            state.restoring.cancel()
            await asyncio.wait([state.restoring])
        await self._handlers.close()
        await state.pool.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def schema(self) -> SchemaStatus:
        return await migrate.schema(self._state.pool, self.settings)

    async def migrate(self, to: int | None = None, *, lose: bool = False) -> SchemaMove:
        return await migrate.migrate(self._state.pool, self.settings, to, lose=lose)

    # --- submitting ----------------------------------------------------------------------

    def add(
        self,
        jobs: Sequence[Job],
        *,
        atomic: bool = True,
        fence: Fence | None = None,
        connection: object = None,
    ) -> Coroutine[Any, Any, list[Added]]:
        """Write new jobs, as ``Store.add``; with ``connection`` in the caller's transaction.

        See ``caller_session`` for the connections it accepts. The jobs exist once that
        transaction commits, which also wakes workers.
        """
        return add.add(self._state, jobs, atomic=atomic, fence=fence, connection=connection)

    async def lineage(self, ids: Sequence[str], connection: object) -> dict[str, Parent]:
        return await caller.lineage(self._state, ids, connection)

    async def adopt(self, exports: Sequence[JobExport]) -> list[bool]:
        return await add.adopt(self._state, exports)

    async def deleted_keys(self, cursor: str | None, limit: int) -> KeyPage:
        return await keys.deleted_keys(self._state, cursor, limit)

    async def adopt_keys(self, held: Sequence[HeldKey]) -> None:
        await keys.adopt_keys(self._state, held)

    # --- working -------------------------------------------------------------------------

    def claim(self, want: Claim) -> Coroutine[Any, Any, list[Job]]:
        return claim.claim(self._state, want)

    def swap(self, changes: Sequence[Change]) -> Coroutine[Any, Any, list[Swapped]]:
        return swap.swap(self._state, changes)

    async def amend(self, changes: Sequence[Change]) -> list[Swapped]:
        return await amend.amend(self._state, changes)

    async def extend(self, fences: Sequence[Fence]) -> list[Renewal]:
        return await swap.extend(self._state, fences)

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        return await swap.note(self._state, notes)

    def transaction(
        self, fence: Fence, decide: Callable[[Job], Job], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[BorrowedConnection]:
        """Lend a connection inside a transaction that ends the job when it commits.

        At the end of the block the job is read and locked under its lease, ``decide`` returns how
        it goes on, and that is committed together with everything the block wrote. When the lease
        is no longer the newest, everything is rolled back and ``StaleLeaseError`` raised. Errors
        of the block are raised unchanged; ``psycopg.Rollback`` ends the block but not the job.

        ``blocking`` lends a connection for plain functions, to be used in another thread. A task
        that is cancelled inside the block leaves the connection, without a server, to that thread.
        """
        return transactions.transaction(
            self._state, self._handlers, fence, decide, blocking=blocking
        )

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        return await read.arrivals(self._state, queues, seen, wait)

    @property
    def not_notified_because(self) -> str:
        wake = self._state.wake
        return "" if wake.listening.is_set() else wake.error

    # --- maintenance ---------------------------------------------------------------------

    async def promote(self, limit: int) -> Promoted:
        return await maintain.promote(self._state, limit)

    async def overdue(self, limit: int) -> list[Job]:
        return await maintain.overdue(self._state, limit)

    async def dependents(self, limit: int) -> list[Dependent]:
        return await maintain.dependents(self._state, limit)

    async def prune(self, retention: Retention, limit: int) -> int:
        return await maintain.prune(self._state, retention, limit)

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        return await maintain.delete(self._state, ids)

    async def lock(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
        return await maintain.lock(self._state, name, holder, ttl, data)

    async def locks(self, prefix: str) -> list[NamedLock]:
        return await read.locks(self._state, prefix)

    async def configure(self, queue: str, settings: Mapping[str, object]) -> None:
        check_settings(settings)
        await limits.configure(self._state, queue, settings)

    async def limit(self, scope: str, rule: LimitRule | None) -> None:
        await limits.limit(self._state, scope, rule)

    async def limits(self) -> list[LimitState]:
        return await limits.limits(self._state)

    # --- reading -------------------------------------------------------------------------

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await read.get(self._state, ids)

    async def cancels(self, ids: Sequence[str]) -> list[CancelRequest | None]:
        return await read.cancels(self._state, ids)

    async def ended(self, ids: Sequence[str]) -> set[str]:
        return await read.ended(self._state, ids)

    async def parents(self, job_id: str) -> list[str]:
        return await read.parents(self._state, job_id)

    async def children(self, job_id: str, *, waiting: bool = False) -> list[str]:
        return await read.children(self._state, job_id, waiting=waiting)

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        return await read.history(self._state, ids)

    async def logs(self, ids: Sequence[str]) -> list[list[LogLine]]:
        return await read.logs(self._state, ids)

    async def find(self, search: Search) -> Page:
        return await find(self._state, search)

    async def failures(self, search: FailureSearch) -> FailurePage:
        return await failures(self._state, search)

    async def stats(
        self, window: StatsWindow, namespace: str | None = None, *, by_minute: bool = False
    ) -> Stats:
        return await read.stats(self._state, window, namespace, by_minute=by_minute)

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        return await read.events(self._state, after, limit, wait)

    async def queues(self, namespace: str | None = None) -> list[QueueInfo]:
        return await read.queues(self._state, namespace)

    async def findings(self) -> list[Finding]:
        return await health.findings(self._state)

    # --- small records beside the jobs ------------------------------------------------------

    async def keep(self, writes: Sequence[RecordWrite]) -> list[int | None]:
        return await records.keep(self._state, writes)

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        return await records.records(self._state, kind, keys)

    async def kinds(self) -> list[str]:
        return await records.kinds(self._state)

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        return await records.browse(self._state, kind, prefix, after, limit, last=last)
