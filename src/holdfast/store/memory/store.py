"""A store in memory: the reference that every other store is compared with.

Nothing survives the process: use it for tests and to try things out. No verb awaits while it
writes, so each is atomic on its event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Self

from msgspec.structs import replace

from holdfast.errors import StaleLeaseError
from holdfast.model import lifecycle
from holdfast.model.job import (
    TERMINAL,
    CancelRequest,
    Job,
    LogLine,
    State,
    Transition,
)
from holdfast.model.measures import Stats, StatsWindow, minute_of, minutes_of
from holdfast.model.policy import Retention
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.store.capabilities import Capabilities
from holdfast.store.contract import EVENTS_KEPT, MAX_LOG_LINES
from holdfast.store.counters import Counters
from holdfast.store.memory import queries
from holdfast.store.memory.limits import MemoryLimits
from holdfast.store.memory.tables import (
    AddPlan,
    RecordTable,
    Tables,
    aborted,
    matches,
    merged,
)
from holdfast.store.queue_settings import check_settings
from holdfast.store.values import (
    Added,
    AddStatus,
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
    Renewal,
    Search,
    Swapped,
)

MEASURES_KEPT = timedelta(days=7)
_WAKING = frozenset({State.SCHEDULED, State.DELAYED, State.RETRYING})


class MemoryStore(RecordTable):
    """Jobs in memory; see ``Store`` for what each verb promises."""

    capabilities = Capabilities()
    not_notified_because = ""

    def __init__(self, clock: Clock | None = None, *, events_kept: int = EVENTS_KEPT) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._events_kept = events_kept
        self._tables = Tables()
        self._wakes = 0
        self._changed = asyncio.Event()

    def now(self) -> datetime:
        return self._clock.now()

    async def refresh(self) -> None:
        """Nothing is due: the time of this machine is that of the store."""

    async def start(self) -> Self:
        return self

    async def close(self) -> None:
        self._wake()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- submitting ----------------------------------------------------------------------

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        if fence is not None and not self._tables.is_held(fence):
            raise StaleLeaseError(fence.job_id)
        plan = AddPlan(self._tables, self.now())
        answers = [plan.judge(job) for job in jobs]
        if atomic and any(a.status in (AddStatus.CONFLICT, AddStatus.MISSING) for a in answers):
            return [aborted(answer) for answer in answers]
        return [
            self._insert(job, plan.parents(job), answer) if plan.is_new(job) else answer
            for job, answer in zip(jobs, answers, strict=True)
        ]

    def _insert(self, job: Job, depends_on: tuple[str, ...], answer: Added) -> Added:
        tables = self._tables
        job = replace(job, depends_on=depends_on)
        tables.sequence += 1
        tables.numbers[job.id] = tables.sequence
        self._write(None, job)
        if job.dedupe is not None:
            tables.keys[job.dedupe.scope, job.dedupe.key] = (job.dedupe, job.id)
        for parent in depends_on:
            tables.link(job.id, parent)
            tables.link_spawned(job, parent)
        for waiting in tables.waiting_fan_in(job.spawned_by):
            tables.link(waiting, job.id)
        return replace(answer, has_dependents=any(tables.edges[job.id].values()))

    async def adopt(self, exports: Sequence[JobExport]) -> list[bool]:
        return [self._adopt(export) for export in exports]

    def _adopt(self, export: JobExport) -> bool:
        job, tables = export.job, self._tables
        if job.id in tables.jobs:
            return False
        parents = tuple(parent for parent in job.depends_on if parent in tables.jobs)
        past = replace(job, trail=export.history)
        self._insert(past, parents, Added(AddStatus.ACCEPTED, job.id))
        tables.jobs[job.id] = replace(tables.jobs[job.id], depends_on=job.depends_on)
        tables.logs[job.id] = list(export.logs[-MAX_LOG_LINES:])
        return True

    async def deleted_keys(self, cursor: str | None, limit: int) -> KeyPage:
        return self._tables.deleted_keys(int(cursor or 0), limit, self.now())

    async def adopt_keys(self, keys: Sequence[HeldKey]) -> None:
        self._tables.adopt_keys(keys)

    # --- working -------------------------------------------------------------------------

    async def claim(self, want: Claim) -> list[Job]:
        now = self.now()
        limits = MemoryLimits(self._tables, now)
        taken: list[Job] = []
        for queue in want.queues:
            if self._tables.settings[queue].get("paused"):
                continue
            for job in self._in_order(queue):
                if len(taken) == want.limit:
                    return taken
                if (want.types is None or job.type in want.types) and limits.admits(job):
                    after = lifecycle.claimed(job, token=want.token, worker=want.worker, now=now)
                    taken.append(self._write(job, after))
        return taken

    def _in_order(self, queue: str) -> list[Job]:
        jobs = self._tables.jobs
        ready = ((place, jobs[job_id]) for job_id, place in self._tables.ready.items())
        return [job for _, job in sorted(r for r in ready if r[1].queue == queue)]

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        return [self._swap(change) for change in changes]

    def _swap(self, change: Change) -> Swapped:
        stored = self._tables.jobs.get(change.before.id)
        if stored is None or not matches(stored, change):
            return Swapped(written=False, job=stored)
        after = self._write(stored, merged(stored, change.after))
        if after.state is State.PENDING and stored.state in TERMINAL:
            return Swapped(written=True, has_dependents=self._tables.wait_again(after))
        if after.state is State.PENDING and stored.state is State.RUNNING:
            return Swapped(written=True, has_dependents=self._tables.wait_for_children(after))
        waiting = [c for c in self._tables.children[after.id] if self._tables.is_waiting(c)]
        if after.state in TERMINAL:
            for child in waiting:
                self._tables.edges[child][after.id] = after.state
        return Swapped(written=True, has_dependents=bool(waiting) and after.state in TERMINAL)

    async def amend(self, changes: Sequence[Change]) -> list[Swapped]:
        answers = [self._tables.amend(change) for change in changes]
        self._wake()
        return answers

    async def extend(self, fences: Sequence[Fence]) -> list[Renewal]:
        return [self._extend(fence) for fence in fences]

    def _extend(self, fence: Fence) -> Renewal:
        if not self._tables.is_held(fence):
            return Renewal(held=False)
        job = self._tables.jobs[fence.job_id]
        assert job.lease is not None
        lease = replace(job.lease, until=self.now() + job.lease_ttl)
        self._tables.jobs[job.id] = replace(job, lease=lease)
        return Renewal(held=True, until=lease.until, cancel=job.cancel)

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        return [self._note(note) for note in notes]

    def _note(self, note: JobNote) -> bool:
        if not self._tables.is_held(note.fence):
            return False
        job = self._tables.jobs[note.fence.job_id]
        if note.progress is not None:
            job = replace(job, progress=note.progress)
            self._tables.emit(job, note.progress)
            self._notify()
        given = {"checkpoint": note.checkpoint, "payload": note.payload}
        job = replace(job, **{name: value for name, value in given.items() if value is not None})
        if note.log is not None:
            lines = self._tables.logs[job.id]
            lines.append(note.log)
            del lines[:-MAX_LOG_LINES]
        self._tables.jobs[job.id] = job
        return True

    # --- maintenance ---------------------------------------------------------------------

    async def promote(self, limit: int) -> Promoted:
        now = self.now()
        waiting = sorted(
            (job.due_at, self._tables.numbers[job.id], job)
            for job in self._tables.jobs.values()
            if job.state in (State.DELAYED, State.RETRYING) and job.due_at is not None
        )
        due = [job for due_at, _, job in waiting if due_at <= now][:limit]
        for job in due:
            self._write(job, lifecycle.due(job, now=now))
        self._age(now)
        later = [due_at for due_at, _, _ in waiting[len(due) :]]
        return Promoted(len(due), later[0] if later else None)

    def _age(self, now: datetime) -> None:
        for job_id, (_, place) in list(self._tables.ready.items()):
            job = self._tables.jobs[job_id]
            interval = self._tables.settings[job.queue].get("ageing")
            if isinstance(interval, timedelta) and job.scheduled_at is not None:
                lifted = max(0, (now - job.scheduled_at) // interval)
                self._tables.ready[job_id] = (max(0, job.priority - lifted), place)

    async def overdue(self, limit: int) -> list[Job]:
        return queries.overdue(self._tables, limit, self.now())

    async def dependents(self, limit: int) -> list[Dependent]:
        return queries.dependents(self._tables, limit)

    async def prune(self, retention: Retention, limit: int) -> int:
        now = self.now()
        old = self._tables.prunable(retention, now)[:limit]
        for job_id in old:
            self._remove(job_id)
        self._tables.expire(now)
        self._tables.trim(self._events_kept, minute_of(now - MEASURES_KEPT))
        return len(old)

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        return [self._delete(job_id) for job_id in ids]

    def _delete(self, job_id: str) -> bool:
        job = self._tables.jobs.get(job_id)
        if job is None or job.state not in TERMINAL or self._tables.is_needed(job_id):
            return False
        self._remove(job_id)
        return True

    async def lock(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
        wanted = NamedLock(name, holder, self.now() + ttl, data)
        return queries.lock(self._tables, wanted, self.now(), ttl)

    async def locks(self, prefix: str) -> list[NamedLock]:
        return queries.locks(self._tables, prefix, self.now())

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return [self._tables.jobs.get(job_id) for job_id in ids]

    async def cancels(self, ids: Sequence[str]) -> list[CancelRequest | None]:
        return [job.cancel if job else None for job in await self.get(ids)]

    async def ended(self, ids: Sequence[str]) -> set[str]:
        return {job.id for job in await self.get(ids) if job and job.state in TERMINAL}

    async def parents(self, job_id: str) -> list[str]:
        return list(self._tables.edges.get(job_id, ()))

    async def children(self, job_id: str, *, waiting: bool = False) -> list[str]:
        return self._tables.followers(job_id) if waiting else self._tables.children_of(job_id)

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        return [list(self._tables.history.get(job_id, ())) for job_id in ids]

    async def logs(self, ids: Sequence[str]) -> list[list[LogLine]]:
        return [list(self._tables.logs.get(job_id, ())) for job_id in ids]

    async def find(self, search: Search) -> Page:
        return queries.find(self._tables, search)

    async def failures(self, search: FailureSearch) -> FailurePage:
        return queries.failures(self._tables, search)

    async def stats(
        self, window: StatsWindow, namespace: str | None = None, *, by_minute: bool = False
    ) -> Stats:
        minutes = minutes_of(window, self.now())
        return queries.stats(self._tables, minutes, namespace, by_minute=by_minute)

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        page = queries.events(self._tables, after, limit, self._events_kept)
        deadline = asyncio.get_running_loop().time() + wait.total_seconds()
        while limit and not page.events and await self._wait_until(deadline):
            page = queries.events(self._tables, after, limit, self._events_kept)
        return page

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        deadline = asyncio.get_running_loop().time() + wait.total_seconds()
        while self._wakes == seen and await self._wait_until(deadline):
            pass
        return self._wakes

    async def configure(self, queue: str, settings: Mapping[str, object]) -> None:
        check_settings(settings)
        self._tables.settings[queue].update(settings)
        self._wake()

    async def limit(self, scope: str, rule: LimitRule | None) -> None:
        self._tables.rules.pop(scope, None)
        if rule is not None:
            self._tables.rules[scope] = rule
        self._wake()

    async def limits(self) -> list[LimitState]:
        return MemoryLimits(self._tables, self.now()).states()

    async def queues(self, namespace: str | None = None) -> list[QueueInfo]:
        return queries.queues(self._tables, namespace)

    async def findings(self) -> list[Finding]:
        return [queries.VOLATILE]

    # --- what the verbs share --------------------------------------------------------------

    def _write(self, before: Job | None, after: Job) -> Job:
        """Store a job and its trail; the one place that changes a job's state."""
        tables = self._tables
        counters = Counters()
        counters.moved(before, after)
        tables.count(counters)
        for edge in after.trail:
            tables.history[after.id].append(edge)
            tables.emit(after, edge)
        if after.trail:
            self._notify()
        stored = replace(after, trail=())
        tables.jobs[after.id] = stored
        if stored.state is not State.SCHEDULED:
            tables.ready.pop(stored.id, None)
        elif before is None or before.state is not State.SCHEDULED or after.trail:
            tables.places += 1
            tables.ready[stored.id] = (stored.priority, tables.places)
        if stored.state in _WAKING or (before and before.state is State.RUNNING and tables.rules):
            self._wake()
        return stored

    def _remove(self, job_id: str) -> None:
        counters = Counters()
        counters.removed(self._tables.jobs[job_id])
        self._tables.count(counters)
        self._tables.forget(job_id)

    def _wake(self) -> None:
        self._wakes += 1
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_until(self, deadline: float) -> bool:
        changed = self._changed
        try:
            async with asyncio.timeout_at(deadline):
                await changed.wait()
        except TimeoutError:
            return False
        return True
