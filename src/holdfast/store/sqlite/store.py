"""The verbs of the SQLite store; each runs in the writer's or the reader's thread.

Decisions come in as finished jobs; only ``claim`` and ``promote`` change states here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from holdfast.errors import StoreError
from holdfast.model.job import CancelRequest, Job, LogLine, Transition
from holdfast.model.measures import Stats, StatsWindow, minutes_of
from holdfast.model.policy import Retention
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.store.capabilities import Capabilities
from holdfast.store.queue_settings import check_settings
from holdfast.store.sqlite import (
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
from holdfast.store.sqlite.encode import micros
from holdfast.store.sqlite.limits import SQLiteLimits, read_rules
from holdfast.store.sqlite.location import Location, filesystem_of
from holdfast.store.sqlite.search import failures, find
from holdfast.store.sqlite.session import SQLiteSession
from holdfast.store.sqlite.shared import FileSettings
from holdfast.store.sqlite.threads import SerialExecutor, ThreadExecutor
from holdfast.store.sqlite.wake import Interest
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

POLL = 0.1
"""Seconds between polls for changes without a message, up to five times that when idle."""


class SQLiteStore:
    """Jobs in one file, for any number of processes on one machine.

    Writes survive power loss unless the URL has ``?durability=process``. One process writes at
    a time: if it freezes while writing (stopped, suspended, in a debugger), the others raise
    ``StoreUnavailableError`` after five seconds until it continues or is killed; reads still
    work. See ``Store`` for what each verb promises.
    """

    capabilities = Capabilities(groups_commits=True)
    not_notified_because = ""

    def __init__(
        self,
        location: Location,
        *,
        clock: Clock | None = None,
        executor: Callable[[str], SerialExecutor] = ThreadExecutor,
        sockets: bool = True,
        poll: float = POLL,
        filesystem_of: Callable[[Path], str] = filesystem_of,
    ) -> None:
        self._location = location
        self._clock = clock or SystemClock()
        self._executor = executor
        self._sockets = sockets
        self._poll = poll
        self._filesystem_of = filesystem_of
        self._session: SQLiteSession | None = None

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        """Return the store of ``sqlite:///path``, not yet started.

        Options: ``durability=process`` survives the end of processes but not power loss,
        ``filesystem=any`` accepts a network filesystem, ``events_kept=N``.
        """
        return cls(Location.from_url(url), clock=clock)

    def now(self) -> datetime:
        return self._clock.now()

    async def refresh(self) -> None:
        """Nothing is due: the time of this machine is that of the store."""

    async def start(self) -> Self:
        if self._session is None or self._session.pid != os.getpid():
            await self._open()
        return self

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- submitting ----------------------------------------------------------------------

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        session = await self._get_session()
        return await session.write(lambda tx: add.add(tx, jobs, atomic=atomic, fence=fence))

    def add_now(self, job: Job, *, patient: bool = False) -> Added | None:
        session = self._session
        if session is None or session.pid != os.getpid():
            return None
        new = [job]
        answers = session.write_now(
            lambda tx: add.add(tx, new, atomic=False, fence=None), patient=patient
        )
        return None if answers is None else answers[0]

    async def adopt(self, exports: Sequence[JobExport]) -> list[bool]:
        session = await self._get_session()
        return await session.write(lambda tx: add.adopt(tx, exports))

    async def deleted_keys(self, cursor: str | None, limit: int) -> KeyPage:
        session, instant = await self._get_session(), micros(self.now())
        return await session.read(lambda db: keys.deleted_keys(db, instant, cursor, limit))

    async def adopt_keys(self, held: Sequence[HeldKey]) -> None:
        session = await self._get_session()
        await session.write(lambda tx: keys.adopt_keys(tx, held))

    # --- working -------------------------------------------------------------------------

    async def claim(self, want: Claim) -> list[Job]:
        session = await self._get_session()
        return await session.write(lambda tx: claim.claim(tx, want))

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        session = await self._get_session()
        return await session.write(lambda tx: swap.swap(tx, changes))

    async def amend(self, changes: Sequence[Change]) -> list[Swapped]:
        session = await self._get_session()
        return await session.write(lambda tx: amend.amend(tx, changes))

    async def extend(self, fences: Sequence[Fence]) -> list[Renewal]:
        session = await self._get_session()
        return await session.write(lambda tx: swap.extend(tx, fences))

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        session = await self._get_session()
        return await session.write(lambda tx: swap.note(tx, notes))

    # --- maintenance ---------------------------------------------------------------------

    async def promote(self, limit: int) -> Promoted:
        session = await self._get_session()
        return await session.write(lambda tx: maintain.promote(tx, limit))

    async def overdue(self, limit: int) -> list[Job]:
        session, instant = await self._get_session(), micros(self.now())
        return await session.read(lambda db: maintain.overdue(db, instant, limit))

    async def dependents(self, limit: int) -> list[Dependent]:
        session = await self._get_session()
        return await session.read(lambda db: maintain.dependents(db, limit))

    async def prune(self, retention: Retention, limit: int) -> int:
        session = await self._get_session()
        return await session.write(lambda tx: maintain.prune(tx, retention, limit))

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        session = await self._get_session()
        return await session.write(lambda tx: maintain.delete(tx, ids))

    async def lock(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
        session = await self._get_session()
        return await session.write(lambda tx: maintain.lock(tx, name, holder, ttl, data))

    async def locks(self, prefix: str) -> list[NamedLock]:
        session, instant = await self._get_session(), micros(self.now())
        return await session.read(lambda db: read.locks(db, prefix, instant))

    # --- reading -------------------------------------------------------------------------

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        session = await self._get_session()
        return await session.read(lambda db: read.get(db, ids))

    async def cancels(self, ids: Sequence[str]) -> list[CancelRequest | None]:
        session = await self._get_session()
        return await session.read(lambda db: read.cancels(db, ids))

    async def ended(self, ids: Sequence[str]) -> set[str]:
        session = await self._get_session()
        return await session.read(lambda db: read.ended(db, ids))

    async def parents(self, job_id: str) -> list[str]:
        session = await self._get_session()
        return await session.read(lambda db: read.parents(db, job_id))

    async def children(self, job_id: str, *, waiting: bool = False) -> list[str]:
        session = await self._get_session()
        return await session.read(lambda db: read.children(db, job_id, waiting=waiting))

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        session = await self._get_session()
        return await session.read(lambda db: read.history(db, ids))

    async def logs(self, ids: Sequence[str]) -> list[list[LogLine]]:
        session = await self._get_session()
        return await session.read(lambda db: read.logs(db, ids))

    async def find(self, search: Search) -> Page:
        session = await self._get_session()
        return await session.read(lambda db: find(db, search))

    async def failures(self, search: FailureSearch) -> FailurePage:
        session = await self._get_session()
        return await session.read(lambda db: failures(db, search))

    async def stats(
        self, window: StatsWindow, namespace: str | None = None, *, by_minute: bool = False
    ) -> Stats:
        session, minutes = await self._get_session(), minutes_of(window, self.now())
        return await session.read(
            lambda db: read.stats(db, minutes, namespace, by_minute=by_minute)
        )

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        session, kept = await self._get_session(), self._location.events_kept
        deadline = asyncio.get_running_loop().time() + wait.total_seconds()
        while True:
            wakes = session.wakes(Interest.EVENTS)
            page = await session.read(lambda db: read.events(db, after, limit, kept))
            if page.events or not limit or not await session.wait(Interest.EVENTS, wakes, deadline):
                return page

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        session = await self._get_session()
        return await session.arrivals(queues, seen, wait)

    async def configure(self, queue: str, settings: Mapping[str, object]) -> None:
        check_settings(settings)
        session = await self._get_session()
        await session.write(lambda tx: limits.configure(tx, queue, settings))

    async def limit(self, scope: str, rule: LimitRule | None) -> None:
        session = await self._get_session()
        await session.write(lambda tx: limits.limit(tx, scope, rule))

    async def limits(self) -> list[LimitState]:
        session, instant = await self._get_session(), micros(self.now())
        return await session.read(lambda db: SQLiteLimits(db, read_rules(db), instant).states())

    async def queues(self, namespace: str | None = None) -> list[QueueInfo]:
        session = await self._get_session()
        return await session.read(lambda db: read.queues(db, namespace))

    async def findings(self) -> list[Finding]:
        session, filesystem = (
            await self._get_session(),
            self._filesystem_of(self._location.path.parent),
        )
        return await session.read(lambda db: health.findings(db, self._location, filesystem))

    # --- small records beside the jobs ------------------------------------------------------

    async def keep(self, writes: Sequence[RecordWrite]) -> list[int | None]:
        session = await self._get_session()
        return await session.write(lambda tx: records.keep(tx, writes))

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        session = await self._get_session()
        return await session.read(lambda db: records.records(db, kind, keys))

    async def kinds(self) -> list[str]:
        session = await self._get_session()
        return await session.read(records.kinds)

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        session = await self._get_session()
        return await session.read(
            lambda db: records.browse(db, kind, prefix, after, limit, last=last)
        )

    # --- what the verbs share --------------------------------------------------------------

    async def _get_session(self) -> SQLiteSession:
        """Return the session of this process; a forked child opens its own."""
        if self._session is None:
            raise StoreError(
                f"{self._location.path} is not open: use 'async with store' or await store.start()"
            )
        if self._session.pid != os.getpid():
            await self._open()
        return self._session

    async def _open(self) -> None:
        self._location.check(self._filesystem_of)
        self._location.create()
        session = SQLiteSession(
            FileSettings(self._location, self._clock, self._executor, self._sockets, self._poll)
        )
        self._session = session
        try:
            await session.open()
        except BaseException:
            self._session = None
            raise
