"""A store whose contents are sealed: any other store, seen through a key ring.

Every verb is that of the store inside; jobs are sealed on their way in and opened on their way
out. What no key opens comes out sealed and is refused where it would be used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Self, cast

from msgspec.structs import replace

from holdfast.encryption.contents import Contents
from holdfast.encryption.key_ring import KeyRing
from holdfast.model.job import CancelRequest, Job, LogLine, Transition
from holdfast.model.policy import Retention
from holdfast.model.submission import Parent
from holdfast.store import (
    Added,
    Change,
    Claim,
    Dependent,
    EventPage,
    FailurePage,
    FailureSearch,
    Fence,
    Finding,
    GroupCommitStore,
    JobNote,
    LanedStore,
    LateStore,
    LimitRule,
    LimitState,
    ListeningStore,
    ListingStore,
    NamedLock,
    Page,
    Promoted,
    QueueInfo,
    Record,
    RecordWrite,
    Renewal,
    Search,
    SharedStore,
    Stats,
    Store,
    Swapped,
)


def sealed(store: Store, keys: KeyRing | None) -> Store:
    """Return a store that keeps everything sealed, or without keys the store itself."""
    if keys is None:
        return store
    if isinstance(store, SharedStore):
        return SealedSharedStore(store, store, keys)
    return EncryptedStore(store, keys)


class EncryptedStore:
    """Passes every verb on, with jobs sealed on their way in and opened on their way out."""

    GROUPS_COMMITS: bool
    LANES: int

    def __init__(self, inner: Store, keys: KeyRing) -> None:
        self.inner = inner
        self._contents = Contents(keys)
        if isinstance(inner, GroupCommitStore):
            self.GROUPS_COMMITS = inner.GROUPS_COMMITS
        if isinstance(inner, LanedStore):
            self.LANES = inner.LANES

    def now(self) -> datetime:
        return self.inner.now()

    async def start(self) -> Self:
        await self.inner.start()
        return self

    async def close(self) -> None:
        await self.inner.close()

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        return await self.inner.add(self._sealed(jobs), atomic=atomic, fence=fence)

    async def claim(self, want: Claim) -> list[Job]:
        return [self._contents.opened_job(job) for job in await self.inner.claim(want)]

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        sealed = [replace(c, after=self._contents.sealed_change(c.after)) for c in changes]
        return [replace(a, job=self._opened(a.job)) for a in await self.inner.swap(sealed)]

    async def extend(self, fences: Sequence[Fence]) -> list[Renewal]:
        return await self.inner.extend(fences)

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        return await self.inner.note([self._contents.sealed_note(note) for note in notes])

    async def promote(self, limit: int) -> Promoted:
        return await self.inner.promote(limit)

    async def overdue(self, limit: int) -> list[Job]:
        return [self._contents.opened_job(job) for job in await self.inner.overdue(limit)]

    async def dependents(self, limit: int) -> list[Dependent]:
        found = await self.inner.dependents(limit)
        return [replace(each, job=self._contents.opened_job(each.job)) for each in found]

    async def prune(self, retention: Retention, limit: int) -> int:
        return await self.inner.prune(retention, limit)

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        return await self.inner.delete(ids)

    async def lock(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
        return await self.inner.lock(name, holder, ttl, data)

    async def locks(self, prefix: str) -> list[NamedLock]:
        return await self.inner.locks(prefix)

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return [self._opened(job) for job in await self.inner.get(ids)]

    async def cancels(self, ids: Sequence[str]) -> list[CancelRequest | None]:
        return await self.inner.cancels(ids)

    async def parents(self, job_id: str) -> list[str]:
        return await self.inner.parents(job_id)

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        histories = await self.inner.history(ids)
        return [
            [self._contents.opened_edge(edge, job_id) for edge in history]
            for job_id, history in zip(ids, histories, strict=True)
        ]

    async def logs(self, job_id: str) -> list[LogLine]:
        return [self._contents.opened_line(line, job_id) for line in await self.inner.logs(job_id)]

    async def find(self, search: Search) -> Page:
        page = await self.inner.find(search)
        return replace(page, jobs=tuple(map(self._contents.opened_job, page.jobs)))

    async def failures(self, search: FailureSearch) -> FailurePage:
        page = await self.inner.failures(search)
        return replace(page, jobs=tuple(map(self._contents.opened_job, page.jobs)))

    async def stats(self, window: timedelta) -> Stats:
        return await self.inner.stats(window)

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        page = await self.inner.events(after, limit, wait)
        return replace(page, events=tuple(map(self._contents.opened_event, page.events)))

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        return await self.inner.arrivals(queues, seen, wait)

    async def configure(self, queue: str, settings: Mapping[str, object]) -> None:
        await self.inner.configure(queue, settings)

    async def limit(self, scope: str, rule: LimitRule | None) -> None:
        await self.inner.limit(scope, rule)

    async def limits(self) -> list[LimitState]:
        return await self.inner.limits()

    async def queues(self) -> list[QueueInfo]:
        return await self.inner.queues()

    async def findings(self) -> list[Finding]:
        return await self.inner.findings()

    async def keep(self, drafts: Sequence[RecordWrite]) -> list[int | None]:
        return await self.inner.keep([self._contents.sealed_draft(draft) for draft in drafts])

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        found = await self.inner.records(kind, keys)
        return [
            None if record is None else self._contents.opened_record(record) for record in found
        ]

    async def kinds(self) -> list[str]:
        return await cast("ListingStore", self.inner).kinds()

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        found = await self.inner.browse(kind, prefix=prefix, after=after, limit=limit, last=last)
        return [self._contents.opened_record(record) for record in found]

    def _sealed(self, jobs: Sequence[Job]) -> list[Job]:
        return [self._contents.sealed_job(job) for job in jobs]

    def _opened(self, job: Job | None) -> Job | None:
        return None if job is None else self._contents.opened_job(job)


class SealedSharedStore(EncryptedStore):
    """A sealed store that can join its callers' transactions."""

    def __init__(self, inner: Store, shared: SharedStore, keys: KeyRing) -> None:
        super().__init__(inner, keys)
        self._shared = shared

    async def add(
        self,
        jobs: Sequence[Job],
        *,
        atomic: bool = True,
        fence: Fence | None = None,
        connection: object = None,
    ) -> list[Added]:
        """Write new jobs, sealed, if and only if the caller's transaction commits."""
        return await self._shared.add(
            self._sealed(jobs), atomic=atomic, fence=fence, connection=connection
        )

    @property
    def not_notified_because(self) -> str:
        """Why nobody tells of new work, if so."""
        return self.inner.not_notified_because if isinstance(self.inner, ListeningStore) else ""

    async def ended(self, ids: Sequence[str]) -> set[str]:
        """Return those of these jobs that have ended."""
        return await self.inner.ended(ids) if isinstance(self.inner, LateStore) else set()

    async def lineage(self, ids: Sequence[str], connection: object) -> dict[str, Parent]:
        """Return what new jobs inherit of those they depend on, as the caller sees these."""
        return await self._shared.lineage(ids, connection)

    def transaction(
        self, fence: Fence, decide: Callable[[Job], Job], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        """Lend a connection whose commit also writes, sealed, what ``decide`` decides."""
        contents = self._contents
        return self._shared.transaction(
            fence,
            lambda job: contents.sealed_change(decide(contents.opened_job(job))),
            blocking=blocking,
        )
