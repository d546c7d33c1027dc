"""A store that forwards every verb to another store: base of those that change some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Self

from holdfast.model.job import CancelRequest, Job, LogLine, Transition
from holdfast.model.measures import Stats, StatsWindow
from holdfast.model.policy import Retention
from holdfast.store.capabilities import Capabilities
from holdfast.store.contract import Store
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
    JobNote,
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


class StoreProxy:
    """Forwards every verb of ``Store``, and none of the extra ones, to ``_inner``."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.capabilities: Capabilities = inner.capabilities

    @property
    def not_notified_because(self) -> str:
        return self._inner.not_notified_because

    def now(self) -> datetime:
        return self._inner.now()

    async def refresh(self) -> None:
        await self._inner.refresh()

    async def start(self) -> Self:
        await self._inner.start()
        return self

    async def close(self) -> None:
        await self._inner.close()

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        return await self._inner.add(jobs, atomic=atomic, fence=fence)

    async def claim(self, want: Claim) -> list[Job]:
        return await self._inner.claim(want)

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        return await self._inner.swap(changes)

    async def amend(self, changes: Sequence[Change]) -> list[Swapped]:
        return await self._inner.amend(changes)

    async def extend(self, fences: Sequence[Fence]) -> list[Renewal]:
        return await self._inner.extend(fences)

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        return await self._inner.note(notes)

    async def promote(self, limit: int) -> Promoted:
        return await self._inner.promote(limit)

    async def overdue(self, limit: int) -> list[Job]:
        return await self._inner.overdue(limit)

    async def dependents(self, limit: int) -> list[Dependent]:
        return await self._inner.dependents(limit)

    async def prune(self, retention: Retention, limit: int) -> int:
        return await self._inner.prune(retention, limit)

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        return await self._inner.delete(ids)

    async def lock(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
        return await self._inner.lock(name, holder, ttl, data)

    async def locks(self, prefix: str) -> list[NamedLock]:
        return await self._inner.locks(prefix)

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await self._inner.get(ids)

    async def cancels(self, ids: Sequence[str]) -> list[CancelRequest | None]:
        return await self._inner.cancels(ids)

    async def ended(self, ids: Sequence[str]) -> set[str]:
        return await self._inner.ended(ids)

    async def parents(self, job_id: str) -> list[str]:
        return await self._inner.parents(job_id)

    async def children(self, job_id: str, *, waiting: bool = False) -> list[str]:
        return await self._inner.children(job_id, waiting=waiting)

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        return await self._inner.history(ids)

    async def logs(self, ids: Sequence[str]) -> list[list[LogLine]]:
        return await self._inner.logs(ids)

    async def find(self, search: Search) -> Page:
        return await self._inner.find(search)

    async def failures(self, search: FailureSearch) -> FailurePage:
        return await self._inner.failures(search)

    async def stats(
        self, window: StatsWindow, namespace: str | None = None, *, by_minute: bool = False
    ) -> Stats:
        return await self._inner.stats(window, namespace, by_minute=by_minute)

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        return await self._inner.events(after, limit, wait)

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        return await self._inner.arrivals(queues, seen, wait)

    async def configure(self, queue: str, settings: Mapping[str, object]) -> None:
        await self._inner.configure(queue, settings)

    async def limit(self, scope: str, rule: LimitRule | None) -> None:
        await self._inner.limit(scope, rule)

    async def limits(self) -> list[LimitState]:
        return await self._inner.limits()

    async def queues(self, namespace: str | None = None) -> list[QueueInfo]:
        return await self._inner.queues(namespace)

    async def findings(self) -> list[Finding]:
        return await self._inner.findings()

    async def keep(self, writes: Sequence[RecordWrite]) -> list[int | None]:
        return await self._inner.keep(writes)

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        return await self._inner.records(kind, keys)

    async def kinds(self) -> list[str]:
        return await self._inner.kinds()

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        return await self._inner.browse(kind, prefix=prefix, after=after, limit=limit, last=last)
