"""One tenant's view of a store: its own queues, jobs, keys and events, and nothing else.

Every request of the service goes through such a view: tenants are separated in one place.
A queue ``q`` of the namespace ``acme`` is stored as ``acme/q``; plain names belong to the
namespace without a name. A view with an owner sees only the jobs which that owner submitted.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Self

from msgspec import json
from msgspec.structs import replace

from holdfast.errors import Fault, StaleLeaseError, ValidationError
from holdfast.model.job import CancelRequest, Job, LogLine, Transition
from holdfast.model.measures import Stats, StatsWindow
from holdfast.model.reserved import OWNER
from holdfast.model.workers import ALL, LEADERSHIP, PREFIX, WorkerInfo, remote_prefix
from holdfast.store.contract import Store
from holdfast.store.namespaces import is_within
from holdfast.store.proxy import StoreProxy
from holdfast.store.record_names import QUEUE, RecordNames
from holdfast.store.tenant_workers import tenant_workers
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
    JobEvent,
    JobNote,
    LimitRule,
    LimitState,
    NamedLock,
    Page,
    QueueInfo,
    Record,
    RecordWrite,
    Renewal,
    Search,
    Swapped,
)

NAMESPACE_RULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}", re.ASCII)


class TenantStore(StoreProxy):
    """A store limited to one namespace.

    ``owner`` is recorded in every new job; with ``only_own`` the jobs of other owners are
    invisible too.
    """

    def __init__(
        self, store: Store, namespace: str = "", *, owner: str = "", only_own: bool = False
    ) -> None:
        super().__init__(store)
        self.namespace = namespace
        self._prefix = f"{namespace}/" if namespace else ""
        self._names = RecordNames(namespace)
        mark = hashlib.blake2b(namespace.encode(), digest_size=6).hexdigest()
        self._mark = f"{mark}." if namespace else ""
        """The prefix of cursors of this namespace."""
        self.owner = owner
        self._only_own = only_own

    @property
    def only_own(self) -> bool:
        """Whether the jobs of other owners are invisible."""
        return self._only_own

    async def start(self) -> Self:
        return self

    async def close(self) -> None:
        """Leave the store open: the view did not open it."""

    # --- names ---------------------------------------------------------------------------

    def within(self, queue: str) -> bool:
        """Whether a stored queue belongs to this namespace."""
        return is_within(queue, self.namespace)

    def sees(self, job: Job) -> bool:
        """Whether a stored job may be shown."""
        return self.within(job.queue) and not (self._only_own and job.tags.get(OWNER) != self.owner)

    def shown(self, queue: str) -> str:
        """Return a stored queue's name as the tenant knows it."""
        return queue.removeprefix(self._prefix)

    def _from_stored(self, job: Job) -> Job:
        if not self._prefix:
            return job
        key = job.limit_key.removeprefix(self._prefix)
        return replace(job, queue=self.shown(job.queue), limit_key=key)

    def _to_stored(self, job: Job) -> Job:
        if not self._prefix:
            return job
        key = job.limit_key and self._prefix + job.limit_key
        return replace(job, queue=self._prefix + job.queue, limit_key=key)

    def _stored_cursor(self, cursor: str | None) -> str | None:
        """Return the stored cursor behind one of this namespace; refuse any other."""
        if cursor is None or not self._mark:
            return cursor
        if not cursor.startswith(self._mark):
            message = "must come from a page of this namespace"
            raise ValidationError([Fault("cursor", "INVALID", message)])
        return cursor.removeprefix(self._mark)

    def _cursor(self, stored: str | None) -> str | None:
        return stored and self._mark + stored

    def _new_job(self, job: Job) -> Job:
        job = self._to_stored(job)
        if self.owner:
            job = replace(job, tags={**job.tags, OWNER: self.owner})
        if job.dedupe is not None and job.dedupe.scope == job.type:
            job = replace(job, dedupe=replace(job.dedupe, scope=self._key_scope(job.type)))
        return job

    def _key_scope(self, type_: str) -> str:
        """Return the scope of idempotency keys: the namespace, and the owner if it sees no other.

        What follows the last ``@`` names both; on Redis a type may contain one too.
        """
        view = f"{self.namespace}/{self.owner}" if self._only_own else self.namespace
        return f"{type_}@{view}" if view or "@" in type_ else type_

    def _queues(self, requested: Sequence[str]) -> tuple[str, ...]:
        """Return the stored names of queues."""
        return tuple(self._prefix + name for name in requested)

    async def _visible(self, ids: Sequence[str]) -> set[str]:
        return {job.id for job in await self._inner.get(ids) if job is not None and self.sees(job)}

    # --- submitting and working ------------------------------------------------------------

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        jobs = [self._new_job(job) for job in jobs]
        if fence is not None and not await self._visible([fence.job_id]):
            raise StaleLeaseError(fence.job_id)
        return await self._inner.add(jobs, atomic=atomic, fence=fence)

    async def claim(self, want: Claim) -> list[Job]:
        queues = tuple(self._prefix + queue for queue in want.queues)
        return [
            self._from_stored(job) for job in await self._inner.claim(replace(want, queues=queues))
        ]

    async def extend(self, fences: Sequence[Fence]) -> list[Renewal]:
        visible = await self._visible([fence.job_id for fence in fences])
        mine = [fence for fence in fences if fence.job_id in visible]
        renewed = iter(await self._inner.extend(mine))
        return [next(renewed) if f.job_id in visible else Renewal(held=False) for f in fences]

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        visible = await self._visible([note.fence.job_id for note in notes])
        mine = [note for note in notes if note.fence.job_id in visible]
        kept = iter(await self._inner.note(mine))
        return [note.fence.job_id in visible and next(kept) for note in notes]

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        """Write changes of jobs that were read through this view."""
        return self._answers(await self._inner.swap(self._inward(changes)))

    async def amend(self, changes: Sequence[Change]) -> list[Swapped]:
        """Amend jobs that were read through this view."""
        return self._answers(await self._inner.amend(self._inward(changes)))

    def _inward(self, changes: Sequence[Change]) -> list[Change]:
        return [
            replace(c, before=self._to_stored(c.before), after=self._to_stored(c.after))
            for c in changes
        ]

    def _answers(self, answers: Sequence[Swapped]) -> list[Swapped]:
        return [
            replace(answer, job=self._from_stored(answer.job)) if answer.job else answer
            for answer in answers
        ]

    # --- maintenance -----------------------------------------------------------------------

    async def overdue(self, limit: int) -> list[Job]:
        found = await self._inner.overdue(limit)
        return [self._from_stored(job) for job in found if self.within(job.queue)]

    async def dependents(self, limit: int) -> list[Dependent]:
        found = await self._inner.dependents(limit)
        return [replace(d, job=self._from_stored(d.job)) for d in found if self.within(d.job.queue)]

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        visible = await self._visible(ids)
        mine = [job_id for job_id in ids if job_id in visible]
        gone = dict(zip(mine, await self._inner.delete(mine), strict=True))
        return [gone.get(job_id, False) for job_id in ids]

    async def lock(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
        if name.startswith(PREFIX):
            info = json.decode(data, type=WorkerInfo)
            queues = tuple(self._prefix + queue for queue in info.queues)
            data = json.encode(replace(info, queues=queues))
            name = remote_prefix(self.namespace) + name.removeprefix(PREFIX)
            return await self._inner.lock(name, holder, ttl, data)
        kind, colon, rest = name.partition(":")
        if self._prefix or "/" in rest:  # no name of another namespace begins with a slash
            name = f"{kind}{colon}{self.namespace}/{rest}"
        return await self._inner.lock(name, holder, ttl, data)

    async def locks(self, prefix: str) -> list[NamedLock]:
        """Return live workers that serve a queue of this namespace, or that one leads."""
        if prefix == LEADERSHIP:
            return [replace(lock, holder="") for lock in await self._inner.locks(prefix)]
        if prefix != ALL:
            return []
        local = await self._inner.locks(PREFIX)
        remote = await self._inner.locks(remote_prefix(self.namespace))
        return await tenant_workers([*local, *remote], self.within, self.shown)

    # --- reading -------------------------------------------------------------------------

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return [
            self._from_stored(job) if job is not None and self.sees(job) else None
            for job in await self._inner.get(ids)
        ]

    async def cancels(self, ids: Sequence[str]) -> list[CancelRequest | None]:
        visible = await self._visible(ids)
        found = await self._inner.cancels(ids)
        return [c if i in visible else None for i, c in zip(ids, found, strict=True)]

    async def ended(self, ids: Sequence[str]) -> set[str]:
        return await self._inner.ended(ids) & await self._visible(ids)

    async def parents(self, job_id: str) -> list[str]:
        return await self._inner.parents(job_id) if await self._visible([job_id]) else []

    async def children(self, job_id: str, *, waiting: bool = False) -> list[str]:
        visible = await self._visible([job_id])
        return await self._inner.children(job_id, waiting=waiting) if visible else []

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        visible = await self._visible(ids)
        found = await self._inner.history(ids)
        return [h if i in visible else [] for i, h in zip(ids, found, strict=True)]

    async def logs(self, ids: Sequence[str]) -> list[list[LogLine]]:
        visible, found = await self._visible(ids), await self._inner.logs(ids)
        return [lines if i in visible else [] for i, lines in zip(ids, found, strict=True)]

    async def find(self, search: Search) -> Page:
        page = await self._inner.find(
            replace(
                search,
                queues=self._queues(search.queues),
                namespace=self.namespace,
                tags={**search.tags, OWNER: self.owner} if self._only_own else search.tags,
                cursor=self._stored_cursor(search.cursor),
            )
        )
        jobs = tuple(self._from_stored(job) for job in page.jobs if self.sees(job))
        return replace(page, jobs=jobs, next_cursor=self._cursor(page.next_cursor))

    async def failures(self, search: FailureSearch) -> FailurePage:
        if self._only_own:
            return FailurePage((), None, 0, {}, {}, {})
        page = await self._inner.failures(
            replace(
                search,
                queues=self._queues(search.queues),
                namespace=self.namespace,
                cursor=self._stored_cursor(search.cursor),
            )
        )
        jobs = tuple(self._from_stored(job) for job in page.jobs if self.sees(job))
        return replace(page, jobs=jobs, next_cursor=self._cursor(page.next_cursor))

    async def stats(
        self, window: StatsWindow, namespace: str | None = None, *, by_minute: bool = False
    ) -> Stats:
        """Return the counters of this namespace."""
        if self._only_own:
            return Stats((), ())
        stats = await self._inner.stats(window, self.namespace, by_minute=by_minute)
        return Stats(
            tuple(replace(each, queue=self.shown(each.queue)) for each in stats.tallies),
            tuple(replace(each, queue=self.shown(each.queue)) for each in stats.readings),
        )

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait.total_seconds()
        gap = False
        while True:
            left = timedelta(seconds=max(0.0, deadline - loop.time()))
            page = await self._inner.events(after, limit, left)
            gap, after = gap or page.gap, page.cursor
            events = await self.visible_events(page.events)
            if events or not page.events or not limit:
                return EventPage(tuple(events), page.cursor, gap)

    async def visible_events(self, events: Sequence[JobEvent]) -> list[JobEvent]:
        """Return those events that the tenant may see, with its own queue names."""
        mine = [e for e in events if self.within(e.queue)]
        if self._only_own:
            owned = await self._visible(list({e.job_id for e in mine}))
            mine = [e for e in mine if e.job_id in owned]
        return [replace(e, queue=self.shown(e.queue)) for e in mine] if self._prefix else mine

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        return await self._inner.arrivals([self._prefix + q for q in queues], seen, wait)

    # --- settings and records ----------------------------------------------------------------

    async def configure(self, queue: str, settings: Mapping[str, object]) -> None:
        await self._inner.configure(self._prefix + queue, settings)

    async def limit(self, scope: str, rule: LimitRule | None) -> None:
        """Limit a queue of this namespace; in one with a name, refuse scopes that span several."""
        if not scope.startswith(QUEUE):
            if not self.namespace:
                await self._inner.limit(scope, rule)
                return
            raise ValueError(f"scope must be queue:NAME in a namespace, got {scope!r:.60}")
        await self._inner.limit(QUEUE + self._prefix + scope.removeprefix(QUEUE), rule)

    async def limits(self) -> list[LimitState]:
        states = await self._inner.limits()
        names = [(s, s.scope.removeprefix(QUEUE)) for s in states if s.scope.startswith(QUEUE)]
        own = [replace(s, scope=QUEUE + self.shown(q)) for s, q in names if self.within(q)]
        if self.namespace:
            return own
        shared = [s for s in states if not s.scope.startswith(QUEUE)]
        return sorted([*own, *shared], key=lambda state: state.scope)

    async def queues(self, namespace: str | None = None) -> list[QueueInfo]:
        """Return the queues of this namespace."""
        found = await self._inner.queues(self.namespace)
        return [replace(queue, name=self.shown(queue.name)) for queue in found]

    async def findings(self) -> list[Finding]:
        """Report nothing: the setup of the store is not for tenants."""
        return []

    async def keep(self, writes: Sequence[RecordWrite]) -> list[int | None]:
        return await self._inner.keep([self._names.write(write) for write in writes])

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        stored = [self._names.key(kind, key) for key in keys]
        found = await self._inner.records(self._names.kind(kind), stored)
        return [self._names.shown(r, kind) if r else None for r in found]

    async def kinds(self) -> list[str]:
        """Return the kinds of this namespace; without a name, those of no other namespace."""
        kinds = await self._inner.kinds()
        if not self.namespace:
            return [kind for kind in kinds if "@" not in kind]
        mark = f"@{self.namespace}"
        return [kind.removesuffix(mark) for kind in kinds if kind.endswith(mark)]

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        names = self._names
        prefix, after = names.key(kind, prefix), after and names.key(kind, after)
        found = await self._inner.browse(
            names.kind(kind), prefix=prefix, after=after, limit=limit, last=last
        )
        return [names.shown(record, kind) for record in found]
