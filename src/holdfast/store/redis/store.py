"""A store on Redis or Valkey that is, at the same time, a set of BullMQ queues.

Every verb is one script call, so one transaction. What BullMQ clients do in between is noticed
at the beginning of each: a queue's event stream tells which jobs to look at again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from msgspec.structs import replace

from holdfast.errors import Fault, StaleLeaseError, StoreError, UnsafeStoreError, ValidationError
from holdfast.model.job import CancelRequest, Job, LogLine, State, Transition
from holdfast.model.measures import Stats, minute_of
from holdfast.model.payload import clean
from holdfast.model.policy import Retention
from holdfast.model.profiles import BULLMQ
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.store.contract import MAX_LOG_LINES, check_settings
from holdfast.store.redis import (
    fields,
    health,
    limits,
    params,
    params_grouped,
    read,
    records,
    wire,
)
from holdfast.store.redis.bullmq_queues import Explorer, advance
from holdfast.store.redis.client import RedisClient, Value
from holdfast.store.redis.health import RedisHealth, examined
from holdfast.store.redis.params import pack
from holdfast.store.redis.settings import RedisKeys, RedisSettings, is_usable
from holdfast.store.redis.wake import Arrivals
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
    JobExport,
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

WRITTEN = Swapped(written=True)
MEASURES_KEPT = timedelta(days=7)
Runner = Callable[[str, str, Sequence[Value]], Awaitable[Any]]


class RedisStore:
    """Jobs in Redis, on BullMQ's wire; see ``Store`` for what each verb promises.

    ``clock`` replaces the server's time and is for tests.
    """

    def __init__(self, settings: RedisSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.keys = RedisKeys(settings.prefix)
        self.client = RedisClient(settings)
        self.health = RedisHealth()
        self._given = clock
        self._local = SystemClock()
        self._ahead = 0.0
        self._arrivals = Arrivals(self.client, self.keys, self._left)
        self._explorer = Explorer(self)
        self._constants: tuple[Value, ...] = (
            settings.events_kept,
            settings.foreign_lifetime // fields.MICROSECOND,
            BULLMQ.lease // fields.MICROSECOND,
            "1" if "unknown-version" in settings.accept else "",
        )

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        """Return the store a ``redis://``, ``rediss://`` or ``valkey://`` URL names."""
        return cls(RedisSettings.from_url(url), clock=clock)

    def now(self) -> datetime:
        if self._given is not None:
            return self._given.now()
        return fields.EPOCH + timedelta(seconds=self._local.monotonic() + self._ahead)

    async def start(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def _start(self) -> None:
        if not self.client.is_open:
            await self.client.open(self.keys.jobs)
        for _ in range(3):
            asked = self._local.monotonic()
            seconds, micros = await self.client.command("TIME")
            self._heard(int(seconds) * 1_000_000 + int(micros), asked)
        self.health = await examined(self.client, self.settings)
        await self._meet()

    async def close(self) -> None:
        await self._arrivals.close()
        await self.client.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- submitting ----------------------------------------------------------------------

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        for job in jobs:
            if not is_usable(job.id):
                raise ValidationError([Fault("id", "RESERVED", f"cannot be {job.id!r:.60}")])
        answers = await self._call(
            self.client.run_confirmed if self.settings.confirms else self.client.run,
            "add",
            "1" if atomic else "0",
            fence.job_id if fence else "",
            fence.token if fence else "",
            pack(params_grouped.new_jobs(jobs)),
        )
        if answers == b"STALE":
            assert fence is not None
            raise StaleLeaseError(fence.job_id)
        return [
            Added(AddStatus.ACCEPTED, job.id) if answer == 1 else _added(*answer)
            for job, answer in zip(jobs, answers, strict=True)
        ]

    async def adopt(self, dossiers: Sequence[JobExport]) -> list[bool]:
        answers = await self.call("adopt", pack([params.dossier(given) for given in dossiers]))
        return [bool(answer) for answer in answers]

    # --- working -------------------------------------------------------------------------

    async def claim(self, want: Claim) -> list[Job]:
        what = pack([want.queues, want.types if want.types is not None else False])
        taken = await self.call("claim", want.limit, want.worker, want.token, what)
        images = [answer for answer in taken if len(answer) == 3]
        self._arrivals.claimed(want.queues, {queue.decode() for _, queue, _ in images})
        for image in images:
            if tick := wire.scheduled(image):
                await advance(self, *tick)
        return params_grouped.read_jobs(taken, self.settings.unknown_backoff)

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        answers = await self.call("swap", pack(params_grouped.changes(changes)))
        return [WRITTEN if answer == 1 else self._swapped(*answer) for answer in answers]

    async def extend(self, fences: Sequence[Fence]) -> list[Renewal]:
        answers = await self.call("extend", pack([[f.job_id, f.token] for f in fences]))
        return [_beat(answer) for answer in answers]

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        answers = await self.call("note", MAX_LOG_LINES, pack([params.note(n) for n in notes]))
        return [bool(answer) for answer in answers]

    # --- maintenance ---------------------------------------------------------------------

    async def promote(self, limit: int) -> Promoted:
        await self._explorer.step()
        asked = self._local.monotonic()
        count, next_due, now = await self.call("promote", limit)
        self._heard(int(now), asked)
        return Promoted(int(count), fields.instant(int(next_due)) if next_due else None)

    async def overdue(self, limit: int) -> list[Job]:
        return [self.read(image) for image in await self.call("overdue", limit)]

    async def dependents(self, limit: int) -> list[Dependent]:
        found = await self.call("dependents", limit)
        return [
            Dependent(
                self.read(image),
                tuple((p.decode(), State(state.decode())) for _, p, state in sorted(edges)),
            )
            for image, edges in found
        ]

    async def prune(self, retention: Retention, limit: int) -> int:
        spans = [
            "" if span is None else span // fields.MICROSECOND
            for span in (
                retention.completed,
                retention.failed,
                retention.dead_letter,
                retention.cancelled,
            )
        ]
        first = minute_of(self.now() - MEASURES_KEPT)
        return int(await self.call("prune", limit, first, *spans))

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        return [bool(answer) for answer in await self.call("delete", pack(list(ids)))]

    async def hold(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
        return bool(await self.call("hold", name, holder, ttl // fields.MICROSECOND, data))

    async def holds(self, prefix: str) -> list[NamedLock]:
        return await read.holds(self, prefix)

    # --- reading -------------------------------------------------------------------------

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        images = await self.call("get", pack(list(map(clean, ids))))
        return [self.read(image) if image else None for image in images]

    async def cancels(self, ids: Sequence[str]) -> list[CancelRequest | None]:
        found = await self.call("peek", "rest", pack(list(map(clean, ids))))
        return [fields.read_cancel(rest[0] if rest else None) for rest in found]

    async def parents(self, job_id: str) -> list[str]:
        return await read.parents(self, job_id)

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        found = await self.call("peek", "history", pack(list(map(clean, ids))))
        return [[edge for story in stories for edge in wire.read_story(story)] for stories in found]

    async def logs(self, job_id: str) -> list[LogLine]:
        (rows,) = await self.call("peek", "logs", pack([job_id]))
        return [wire.read_log_row(row) for row in rows]

    async def find(self, search: Search) -> Page:
        return await read.find(self, search)

    async def failures(self, search: FailureSearch) -> FailurePage:
        return await read.failures(self, search)

    async def stats(self, window: timedelta) -> Stats:
        return await read.stats(self, minute_of(self.now() - window))

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        return await read.events(self, after, limit, wait)

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        return await self._arrivals.wait(queues, seen, wait)

    async def configure(self, queue: str, settings: Mapping[str, object]) -> None:
        check_settings(settings)
        paused, ageing = "", ""
        if "paused" in settings:
            paused = "1" if settings["paused"] else "0"
        if "ageing" in settings:
            span = settings["ageing"]
            ageing = str(span // fields.MICROSECOND) if isinstance(span, timedelta) else "0"
        await self.call("configure", queue, paused, ageing)
        self._arrivals.ring()

    async def limit(self, scope: str, rule: LimitRule | None) -> None:
        await limits.limit(self, scope, rule)
        self._arrivals.ring()

    async def limits(self) -> list[LimitState]:
        return await limits.limits(self)

    async def queues(self) -> list[QueueInfo]:
        return await read.queues(self)

    async def findings(self) -> list[Finding]:
        return await health.findings(self.client, self.health.warnings, self._local.now())

    # --- small records beside the jobs ------------------------------------------------------

    async def keep(self, drafts: Sequence[RecordWrite]) -> list[int | None]:
        return await records.keep(self, drafts)

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        return await records.records(self, kind, keys)

    async def kinds(self) -> list[str]:
        return await records.kinds(self)

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        return await records.browse(self, kind, prefix, after, limit, last=last)

    # --- what the verbs share --------------------------------------------------------------

    async def call(self, name: str, *args: Value) -> Any:
        """Run a script with what every script needs."""
        return await self._call(self.client.run, name, *args)

    async def _call(self, run: Runner, name: str, *args: Value) -> Any:
        moment = "" if self._given is None else fields.micros(self._given.now())
        common = (self.settings.prefix, moment, *self._constants)
        return await run(name, self.keys.jobs, (*common, *args))

    def read(self, image: wire.Image) -> Job:
        """Read a job from a script's answer."""
        return wire.read_job(image, self.settings.unknown_backoff)

    def _swapped(self, written: int, answer: int | wire.Image | None) -> Swapped:
        if written:
            return Swapped(written=True, has_dependents=bool(answer))
        assert not isinstance(answer, int)
        return Swapped(written=False, job=self.read(answer) if answer else None)

    def warn(self, text: str) -> None:
        """Add to what the operator should know."""
        if text not in self.health.warnings:
            self.health = replace(self.health, warnings=(*self.health.warnings, text))

    async def _left(self, queues: Sequence[str]) -> list[bytes]:
        names: list[bytes] = await self.call("left", pack(queues))
        return names

    def _heard(self, server_micros: int, asked: float) -> None:
        """Learn the server's time: the least that is certainly not behind it.

        So nothing this process decides after an answer is dated before what the answer told.
        """
        server = server_micros / 1_000_000
        behind = server - self._local.monotonic() > self._ahead
        self._ahead = server - asked if behind else min(self._ahead, server - asked)

    async def _meet(self) -> None:
        """Get to know the queues there are, and refuse those this store cannot speak to."""
        if strange := await self._explorer.all():
            raise StoreError(f"redis: {strange[0]}")


def _added(
    status: bytes, job_id: bytes, missing: Sequence[bytes] = (), has_dependents: int = 0
) -> Added:
    return Added(
        AddStatus(status.decode()),
        job_id.decode(),
        missing=tuple(each.decode() for each in missing),
        has_dependents=bool(has_dependents),
    )


def _beat(answer: tuple[bytes, bytes | None] | None) -> Renewal:
    if answer is None:
        return Renewal(held=False)
    until, rest = answer
    return Renewal(held=True, until=fields.instant(int(until)), cancel=fields.read_cancel(rest))


__all__ = ["RedisStore", "UnsafeStoreError"]
