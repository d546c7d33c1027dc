"""A copy from store to store that can be killed at any instant and resumed.

It pauses the source's queues first and leaves them paused; it opens the target's queues last,
after it has compared every job. ``adopt`` is idempotent, so a half-written page is repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime, timedelta
from typing import cast

import msgspec
from msgspec.structs import replace

from holdfast.copying.progress import (
    FROM,
    KIND,
    LOCK_TTL,
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
from holdfast.maintenance.ticks import PREFIX as CRON
from holdfast.model.job import Job
from holdfast.model.reserved import PLACE
from holdfast.runtime.ahead import ahead
from holdfast.runtime.randomness import Randomness
from holdfast.store import JobExport, Order, PortableStore, Record, RecordWrite, Search, Store

ExportPage = tuple[list[JobExport], str | None]

PAGE = 500
SHOWN = 10
"""How many differences a report lists."""


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did and found."""

    jobs: int
    adopted: int
    resumed: bool
    queues: int
    limits: int
    schedules: int
    records: int
    keys: int
    """Idempotency keys whose jobs were deleted."""
    differences: tuple[str, ...] = ()
    started_at: datetime
    finished_at: datetime | None = None

    @property
    def ok(self) -> bool:
        """Whether both stores hold the same."""
        return not self.differences


class Copier:
    """Copies everything from one store into another; both are started, neither has workers.

    ``progress`` is called with "copied" or "compared" and the number of jobs so far.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        *,
        names: tuple[str, str] = ("source", "target"),
        randomness: Randomness | None = None,
        progress: Callable[[str, int], None] | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._names = names
        self._id = (randomness or Randomness()).token()
        self._locked_at = 0.0
        self._progress = progress or (lambda _, __: None)

    async def run(self) -> CopyReport:
        """Copy, or resume a copy, and compare; raise CopyRefusedError when that is not safe."""
        for store, where in ((self._source, "source"), (self._target, "target")):
            if not isinstance(store, PortableStore):
                raise CopyRefusedError(
                    f"the {where} is a view of a store: pass the store that open_store returns"
                )
        try:
            await self._lock()
            return await self._run()
        finally:
            for store in (self._source, self._target):
                await store.lock(KIND, self._id, timedelta(0))

    async def _run(self) -> CopyReport:
        note, resumed = await self._resume_or_begin()
        await refuse_workers(self._source, "source")
        await refuse_workers(self._target, "target")
        await refuse_running(self._source)
        note = await self._pause_queues(note)
        counts = {
            "queues": len(note.queues),
            "limits": await self._copy_limits(),
            "schedules": await self._copy_schedules(),
            "records": await self._copy_records(),
        }
        adopted, note = await self._copy_jobs(note)
        counts["keys"] = await self._copy_keys()
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

    async def _keep_lock(self) -> None:
        """Renew the lock, well before it ends."""
        if time.monotonic() - self._locked_at > LOCK_TTL.total_seconds() / 5:
            await self._lock()

    async def _lock(self) -> None:
        """Hold a lock on both stores, so that no other copy uses them."""
        self._locked_at = time.monotonic()
        for store in (self._source, self._target):
            if not await store.lock(KIND, self._id, LOCK_TTL):
                raise CopyRefusedError(
                    "another copy is using one of the stores: wait until it ends; if it was killed,"
                    f" try again in {LOCK_TTL.total_seconds():g} s"
                )

    async def _resume_or_begin(self) -> tuple[CopyNote, bool]:
        """Return the note to continue from, and whether an earlier copy wrote it."""
        there, here = await read_note(self._target, FROM), await read_note(self._source, TO)
        if there is not None and there.finished_at is not None and not there.opened:
            await self._open_queues(there)
        for note in (there, here):
            if note is not None and note.finished_at is not None:
                when = f"{note.finished_at:%Y-%m-%d %H:%M} UTC"
                raise CopyRefusedError(
                    f"{note.source} was already copied to {note.target} at {when}"
                )
        if there is not None:
            if here is not None and here.id != there.id:
                raise CopyRefusedError(
                    f"the target holds an unfinished copy of another store, {there.source}"
                )
            await write_note(self._source, TO, replace(there, queues={}, cursor=None))
            return there, True
        await refuse_contents(self._target)
        source, target = self._names
        note = CopyNote(
            id=self._id if here is None else here.id,
            source=source,
            target=target,
            started_at=self._source.now(),
        )
        await write_note(self._target, FROM, note)
        await write_note(self._source, TO, note)
        return note, False

    async def _pause_queues(self, note: CopyNote) -> CopyNote:
        """Pause the queues of both stores; the target's note keeps their settings."""
        queues = await self._source.queues()
        current = {q.name: QueueFlags(q.paused, q.ageing) for q in queues}
        note = replace(note, queues={**current, **note.queues})
        await write_note(self._target, FROM, note)
        for name, flags in note.queues.items():
            await self._target.configure(name, {"paused": True, "ageing": flags.ageing})
            await self._source.configure(name, {"paused": True})
        return note

    async def _copy_limits(self) -> int:
        # The usage of a single key, key:TYPE:KEY, is listed as well as its rule.
        rules = [s for s in await self._source.limits() if s.scope.count(":") == 1]
        for state in rules:
            await self._target.limit(state.scope, state.rule)
        return len(rules)

    async def _copy_schedules(self) -> int:
        locks, now = await self._source.locks(CRON), self._source.now()
        for lock in locks:
            await self._target.lock(lock.name, lock.holder, lock.until - now, lock.data)
        return len(locks)

    async def _copy_records(self) -> int:
        count = 0
        for kind in await self._source.kinds():
            after = ""
            while kind != KIND and (page := await self._source.browse(kind, after=after)):
                await self._target.keep([_copied_record(record) for record in page])
                count, after = count + len(page), page[-1].key
        return count

    async def _copy_jobs(self, note: CopyNote) -> tuple[int, CopyNote]:
        adopted = 0
        target = cast(PortableStore, self._target)
        async for exports, cursor in ahead(_exported(self._source, note.cursor)):
            adopted += sum(await target.adopt(exports))
            note = replace(note, cursor=cursor or note.cursor, jobs=note.jobs + len(exports))
            await write_note(self._target, FROM, note)
            await self._keep_lock()
            self._progress("copied", note.jobs)
        return adopted, note

    async def _copy_keys(self) -> int:
        """Copy the open keys of deleted jobs; other keys come with their jobs."""
        source, target = cast(PortableStore, self._source), cast(PortableStore, self._target)
        count, page = 0, await source.deleted_keys(None, PAGE)
        while True:
            if page.keys:
                await target.adopt_keys(page.keys)
            count += len(page.keys)
            if page.cursor is None:
                return count
            page = await source.deleted_keys(page.cursor, PAGE)

    async def _differences(self) -> tuple[list[str], int]:
        """Compare both stores job by job; return the differences and the number of jobs."""
        found: list[str] = []
        count = 0
        async for here, _ in ahead(_exported(self._source, None)):
            pairs = zip(here, await self._copies(here), strict=True)
            found += [text for ours, theirs in pairs if (text := _difference(ours, theirs))]
            count += len(here)
            await self._keep_lock()
            self._progress("compared", count)
        total = (await self._target.find(Search(limit=1))).total
        if total != count:
            found.append(f"the source holds {count} jobs, the target {total}")
        more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        return found[:SHOWN] + more, count

    async def _copies(self, exports: Sequence[JobExport]) -> list[JobExport | None]:
        ids, store = [export.job.id for export in exports], self._target
        read = await asyncio.gather(store.get(ids), store.history(ids), store.logs(ids))
        return [
            None if job is None else JobExport(job, tuple(history), tuple(lines))
            for job, history, lines in zip(*read, strict=True)
        ]

    async def _finish(self, note: CopyNote) -> CopyNote:
        """Open the target; once the first note is written, the copy counts as finished."""
        note = replace(note, finished_at=self._source.now())
        await write_note(self._target, FROM, note)
        return await self._open_queues(note)

    async def _open_queues(self, note: CopyNote) -> CopyNote:
        for name, flags in note.queues.items():
            await self._target.configure(name, {"paused": flags.paused})
        note = replace(note, opened=True)
        await write_note(self._source, TO, replace(note, queues={}, cursor=None))
        await write_note(self._target, FROM, note)
        return note


def _copied_record(record: Record) -> RecordWrite:
    """Return a record for the other store, without its position in this store's event stream."""
    data = record.data
    if record.kind == PLACE:
        data = msgspec.json.encode({**msgspec.json.decode(data), "cursor": None})
    return RecordWrite(kind=record.kind, key=record.key, data=data)


async def _exported(store: Store, cursor: str | None) -> AsyncGenerator[ExportPage, None]:
    """Yield all jobs in order of submission, page by page, each with the cursor of the next."""
    while True:
        page = await store.find(Search(order=Order.CREATED_ASC, limit=PAGE, cursor=cursor))
        cursor = page.next_cursor
        if page.jobs:
            yield await _exports(store, page.jobs), cursor
        if cursor is None:
            return


async def _exports(store: Store, jobs: Sequence[Job]) -> list[JobExport]:
    ids = [job.id for job in jobs]
    histories, logs = await asyncio.gather(store.history(ids), store.logs(ids))
    return [
        JobExport(job, tuple(history), tuple(lines))
        for job, history, lines in zip(jobs, histories, logs, strict=True)
    ]


def _difference(here: JobExport, there: JobExport | None) -> str:
    if there is None:
        return f"job {here.job.id} is missing"
    if here == there:
        return ""
    parts = [name for name in ("history", "logs") if getattr(here, name) != getattr(there, name)]
    ours, theirs = msgspec.structs.asdict(here.job), msgspec.structs.asdict(there.job)
    parts += [name for name, value in ours.items() if theirs[name] != value]
    return f"job {here.job.id} differs in {', '.join(parts)}"
