"""A copy from store to store that can be killed at any instant and run again.

The source's queues are paused first and stay so; the target's are opened last, after every
job was compared. Adopting is idempotent, so a page that was half written is simply repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import cast

import msgspec
from msgspec.structs import replace

from holdfast.copying.progress import (
    CLAIM,
    FROM,
    KIND,
    TO,
    CopyNote,
    CopyRefusedError,
    QueueFlags,
    read_note,
    refuse_contents,
    refuse_running,
    refuse_workers,
    write_note,
)
from holdfast.maintenance.cron import PREFIX as CRON
from holdfast.model.job import Job
from holdfast.model.reserved import PLACE
from holdfast.runtime.randomness import Randomness
from holdfast.store import JobExport, Order, PortableStore, Record, RecordWrite, Search, Store

PAGE = 200
AT_ONCE = 20
"""Reads of one page that are under way together."""
SHOWN = 10
"""Differences that a report names."""


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did and found."""

    jobs: int
    adopted: int
    resumed: bool
    queues: int
    limits: int
    schedules: int
    records: int
    differences: tuple[str, ...] = ()
    started_at: datetime
    finished_at: datetime | None = None

    @property
    def ok(self) -> bool:
        """Whether both stores hold the same."""
        return not self.differences


class Copier:
    """Copies everything of one store into another; both are started, neither has workers.

    ``told`` hears how many jobs are done: copied, then compared.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        *,
        names: tuple[str, str] = ("source", "target"),
        randomness: Randomness | None = None,
        told: Callable[[str, int], None] | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._names = names
        self._me = (randomness or Randomness()).token()
        self._told = told or (lambda _, __: None)

    async def run(self) -> CopyReport:
        """Copy, or go on copying, and compare; CopyRefusedError when that is not safe."""
        for store, where in ((self._source, "source"), (self._target, "target")):
            if not isinstance(store, PortableStore):
                raise CopyRefusedError(
                    f"the {where} is a view of a store: copy what open_store gives"
                )
        try:
            await self._claim()
            return await self._run()
        finally:
            for store in (self._source, self._target):
                await store.hold(KIND, self._me, timedelta(0))

    async def _run(self) -> CopyReport:
        note, resumed = await self._noted()
        await refuse_workers(self._source, "source")
        await refuse_workers(self._target, "target")
        await refuse_running(self._source)
        note = await self._pause(note)
        counts = {
            "queues": len(note.queues),
            "limits": await self._limits(),
            "schedules": await self._schedules(),
            "records": await self._records(),
        }
        adopted, note = await self._jobs(note)
        found, count = await self._differences()
        note = replace(note, jobs=count)
        if not found:
            note = await self._finish(note)
        return CopyReport(
            jobs=note.jobs,
            adopted=adopted,
            resumed=resumed,
            differences=tuple(found),
            started_at=note.started_at,
            finished_at=note.finished_at,
            **counts,
        )

    async def _claim(self) -> None:
        """Keep others from copying from or to these stores for a while."""
        for store in (self._source, self._target):
            if not await store.hold(KIND, self._me, CLAIM):
                raise CopyRefusedError(
                    "another copy is at work on one of the stores: let it end; if it was killed,"
                    f" try again in {CLAIM.total_seconds():g} s"
                )

    async def _noted(self) -> tuple[CopyNote, bool]:
        """Return the note to go on from, and whether a copy was begun before."""
        there, here = await read_note(self._target, FROM), await read_note(self._source, TO)
        if there is not None and there.finished_at is not None and not there.opened:
            await self._open(there)
        for note in (there, here):
            if note is not None and note.finished_at is not None:
                when = f"{note.finished_at:%Y-%m-%d %H:%M} UTC"
                raise CopyRefusedError(
                    f"{note.source} was copied to {note.target} at {when}, and once is enough"
                )
        if there is not None:
            if here is not None and here.id != there.id:
                raise CopyRefusedError(
                    f"the target holds an unfinished copy of {there.source}, which is another store"
                )
            await write_note(self._source, TO, replace(there, queues={}, cursor=None))
            return there, True
        await refuse_contents(self._target)
        source, target = self._names
        note = CopyNote(
            id=self._me if here is None else here.id,
            source=source,
            target=target,
            started_at=self._source.now(),
        )
        await write_note(self._target, FROM, note)
        await write_note(self._source, TO, note)
        return note, False

    async def _pause(self, note: CopyNote) -> CopyNote:
        """Let nothing start in either store; the target's note keeps how queues were set."""
        queues = await self._source.queues()
        flags = {q.name: QueueFlags(q.paused, q.ageing) for q in queues}
        note = replace(note, queues={**flags, **note.queues})
        await write_note(self._target, FROM, note)
        for name, kept in note.queues.items():
            await self._target.configure(name, {"paused": True, "ageing": kept.ageing})
            await self._source.configure(name, {"paused": True})
        return note

    async def _limits(self) -> int:
        # A key's own usage is listed below its rule: key:TYPE:KEY.
        rules = [s for s in await self._source.limits() if s.scope.count(":") == 1]
        for state in rules:
            await self._target.limit(state.scope, state.rule)
        return len(rules)

    async def _schedules(self) -> int:
        kept, now = await self._source.holds(CRON), self._source.now()
        for hold in kept:
            await self._target.hold(hold.name, hold.holder, hold.until - now, hold.data)
        return len(kept)

    async def _records(self) -> int:
        count = 0
        for kind in await cast(PortableStore, self._source).kinds():
            after = ""
            while kind != KIND and (page := await self._source.browse(kind, after=after)):
                await self._target.keep([_carried(record) for record in page])
                count, after = count + len(page), page[-1].key
        return count

    async def _jobs(self, note: CopyNote) -> tuple[int, CopyNote]:
        adopted = 0
        target = cast(PortableStore, self._target)
        async for jobs, cursor in _pages(self._source, note.cursor):
            adopted += sum(await target.adopt(await _dossiers(self._source, jobs)))
            note = replace(note, cursor=cursor or note.cursor, jobs=note.jobs + len(jobs))
            await write_note(self._target, FROM, note)
            await self._claim()
            self._told("copied", note.jobs)
        return adopted, note

    async def _differences(self) -> tuple[list[str], int]:
        """Compare both stores job by job; say where they differ, and how many were compared."""
        found: list[str] = []
        count = 0
        async for jobs, _ in _pages(self._source, None):
            here, there = await _dossiers(self._source, jobs), await self._adopted(jobs)
            pairs = zip(here, there, strict=True)
            found += [told for ours, theirs in pairs if (told := _difference(ours, theirs))]
            count += len(jobs)
            await self._claim()
            self._told("compared", count)
        total = (await self._target.find(Search(limit=1))).total
        if total != count:
            found.append(f"the source holds {count} jobs, the target {total}")
        more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        return found[:SHOWN] + more, count

    async def _adopted(self, jobs: Sequence[Job]) -> list[JobExport | None]:
        stored = await self._target.get([job.id for job in jobs])
        made = await _dossiers(self._target, [job for job in stored if job is not None])
        by_id = {dossier.job.id: dossier for dossier in made}
        return [by_id.get(job.id) for job in jobs]

    async def _finish(self, note: CopyNote) -> CopyNote:
        """Open the target; from the first note on, the copy is over and will not be repeated."""
        note = replace(note, finished_at=self._source.now())
        await write_note(self._target, FROM, note)
        return await self._open(note)

    async def _open(self, note: CopyNote) -> CopyNote:
        for name, kept in note.queues.items():
            await self._target.configure(name, {"paused": kept.paused})
        note = replace(note, opened=True)
        await write_note(self._source, TO, replace(note, queues={}, cursor=None))
        await write_note(self._target, FROM, note)
        return note


def _carried(record: Record) -> RecordWrite:
    """A record as it goes to the other store; places in an event stream mean nothing there."""
    data = record.data
    if record.kind == PLACE:
        data = msgspec.json.encode({**msgspec.json.decode(data), "cursor": None})
    return RecordWrite(kind=record.kind, key=record.key, data=data)


async def _pages(
    store: Store, cursor: str | None
) -> AsyncIterator[tuple[Sequence[Job], str | None]]:
    """Every job in order of submission, page by page, each with where the next one begins."""
    while True:
        page = await store.find(Search(order=Order.CREATED_ASC, limit=PAGE, cursor=cursor))
        cursor = page.next_cursor
        if page.jobs:
            yield page.jobs, cursor
        if cursor is None:
            return


async def _dossiers(store: Store, jobs: Sequence[Job]) -> list[JobExport]:
    histories = await store.history([job.id for job in jobs])
    room = asyncio.Semaphore(AT_ONCE)

    async def complete(job: Job, history: Sequence[object]) -> JobExport:
        async with room:
            return JobExport(job, tuple(history), tuple(await store.logs(job.id)))  # type: ignore[arg-type]

    return await asyncio.gather(*map(complete, jobs, histories))


def _difference(here: JobExport, there: JobExport | None) -> str:
    if there is None:
        return f"job {here.job.id} is missing"
    if here == there:
        return ""
    parts = [name for name in ("history", "logs") if getattr(here, name) != getattr(there, name)]
    ours, theirs = msgspec.structs.asdict(here.job), msgspec.structs.asdict(there.job)
    parts += [name for name, value in ours.items() if theirs[name] != value]
    return f"job {here.job.id} differs in {', '.join(parts)}"
