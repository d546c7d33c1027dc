"""A store on Redis or Valkey whose queues BullMQ clients can share.

Every verb is one script call, so one transaction. Each script first reads the event streams of
its queues, which name the jobs that BullMQ clients have changed since the last call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Self

from holdfast.errors import StoreError, UnsafeStoreError
from holdfast.model.job import TERMINAL, CancelRequest, Job, LogLine, Transition
from holdfast.model.measures import Stats, StatsWindow, minutes_of
from holdfast.model.policy import Retention
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.store.capabilities import Capabilities
from holdfast.store.queue_settings import check_settings
from holdfast.store.redis import (
    add,
    amend,
    claim,
    health,
    keys,
    limits,
    maintain,
    read,
    records,
    swap,
)
from holdfast.store.redis.bullmq_queues import QueueFinder
from holdfast.store.redis.encode import pack, size_fault
from holdfast.store.redis.own_keys import damaged_keys
from holdfast.store.redis.search import failures, find
from holdfast.store.redis.session import RedisSession
from holdfast.store.redis.settings import OWN_KEYS, RedisSettings
from holdfast.store.redis.wake import Arrivals
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

PROMOTED_AT_ONCE = 1000
"""Due jobs that a waiting worker makes ready in one call."""


class RedisStore:
    """Jobs in Redis, in BullMQ's format; see ``Store`` for what each verb promises.

    ``clock`` replaces the server's time and is for tests.
    """

    capabilities = Capabilities(
        reads_elsewhere=True,
        size_fault=size_fault,
        reserved_queues=frozenset({OWN_KEYS}),
        bullmq_names=True,
        removes_ended=True,
        deduplicates=True,
        closes_queues=True,
    )
    not_notified_because = ""

    def __init__(self, settings: RedisSettings, *, clock: Clock | None = None) -> None:
        self.session = RedisSession(settings, clock)
        self._arrivals = Arrivals(
            self.session.client,
            self.session.keys,
            now=self.session.now,
            return_markers=self._return_markers,
            promote_due=self._promote_due,
        )
        self._queue_finder = QueueFinder(self.session)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        """Return the store of a ``redis://``, ``rediss://`` or ``valkey://`` URL."""
        return cls(RedisSettings.from_url(url), clock=clock)

    def now(self) -> datetime:
        return self.session.now()

    async def refresh(self) -> None:
        await self.session.refresh()

    async def start(self) -> Self:
        try:
            await self.session.open()
            if unsupported := await self._queue_finder.find_all():
                raise StoreError(f"redis: {unsupported[0]}")
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        await self._arrivals.close()
        await self.session.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- submitting ----------------------------------------------------------------------

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        return await add.add(self.session, jobs, atomic=atomic, fence=fence)

    async def adopt(self, exports: Sequence[JobExport]) -> list[bool]:
        return await add.adopt(self.session, exports)

    async def deleted_keys(self, cursor: str | None, limit: int) -> KeyPage:
        return await keys.deleted_keys(self.session, cursor, limit)

    async def adopt_keys(self, held: Sequence[HeldKey]) -> None:
        await keys.adopt_keys(self.session, held)

    # --- working -------------------------------------------------------------------------

    async def claim(self, want: Claim) -> list[Job]:
        return await claim.claim(self.session, self._arrivals, want)

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        return await swap.swap(self.session, changes)

    async def amend(self, changes: Sequence[Change]) -> list[Swapped]:
        return await amend.amend(self.session, changes)

    async def extend(self, fences: Sequence[Fence]) -> list[Renewal]:
        return await swap.extend(self.session, fences)

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        return await swap.note(self.session, notes)

    # --- maintenance ---------------------------------------------------------------------

    async def promote(self, limit: int) -> Promoted:
        await self._queue_finder.promoted()
        return await maintain.promote(self.session, limit)

    async def overdue(self, limit: int) -> list[Job]:
        return await maintain.overdue(self.session, limit)

    async def dependents(self, limit: int) -> list[Dependent]:
        return await maintain.dependents(self.session, limit)

    async def prune(self, retention: Retention, limit: int) -> int:
        return await maintain.prune(self.session, retention, limit)

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        return await maintain.delete(self.session, ids)

    async def lock(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
        return await maintain.lock(self.session, name, holder, ttl, data)

    async def locks(self, prefix: str) -> list[NamedLock]:
        return await read.locks(self.session, prefix)

    # --- reading -------------------------------------------------------------------------

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await read.get(self.session, ids)

    async def cancels(self, ids: Sequence[str]) -> list[CancelRequest | None]:
        return await read.cancels(self.session, ids)

    async def ended(self, ids: Sequence[str]) -> set[str]:
        return {job.id for job in await self.get(ids) if job and job.state in TERMINAL}

    async def parents(self, job_id: str) -> list[str]:
        return await read.parents(self.session, job_id)

    async def children(self, job_id: str, *, waiting: bool = False) -> list[str]:
        return await read.children(self.session, job_id, waiting=waiting)

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        return await read.history(self.session, ids)

    async def logs(self, ids: Sequence[str]) -> list[list[LogLine]]:
        return await read.logs(self.session, ids)

    async def find(self, search: Search) -> Page:
        return await find(self.session, search)

    async def failures(self, search: FailureSearch) -> FailurePage:
        return await failures(self.session, search)

    async def stats(
        self, window: StatsWindow, namespace: str | None = None, *, by_minute: bool = False
    ) -> Stats:
        minutes = minutes_of(window, self.now())
        return await read.stats(self.session, minutes, namespace, by_minute=by_minute)

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        return await read.events(self.session, after, limit, wait)

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        return await self._arrivals.wait(queues, seen, wait)

    async def configure(self, queue: str, settings: Mapping[str, object]) -> None:
        check_settings(settings, closes_queues=True)
        await limits.configure(self.session, queue, settings)
        self._arrivals.notify()

    async def limit(self, scope: str, rule: LimitRule | None) -> None:
        await limits.limit(self.session, scope, rule)
        self._arrivals.notify()

    async def limits(self) -> list[LimitState]:
        return await limits.limits(self.session)

    async def queues(self, namespace: str | None = None) -> list[QueueInfo]:
        return await read.queues(self.session, namespace)

    async def findings(self) -> list[Finding]:
        client, warnings = self.session.client, self.session.health.warnings
        damaged = await damaged_keys(client, self.session.keys)
        return [*await health.findings(client, warnings, SystemClock().now()), *damaged]

    # --- small records beside the jobs ------------------------------------------------------

    async def keep(self, writes: Sequence[RecordWrite]) -> list[int | None]:
        return await records.keep(self.session, writes)

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        return await records.records(self.session, kind, keys)

    async def kinds(self) -> list[str]:
        return await records.kinds(self.session)

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        return await records.browse(self.session, kind, prefix, after, limit, last=last)

    async def _return_markers(self, queues: Sequence[str]) -> list[bytes]:
        names: list[bytes] = await self.session.call("return_markers", pack(queues))
        return names

    async def _promote_due(self) -> datetime | None:
        return (await maintain.promote(self.session, PROMOTED_AT_ONCE)).next_due


__all__ = ["RedisStore", "UnsafeStoreError"]
