"""Waiting for jobs to end: one reader of the event stream for any number of waiters."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta
from itertools import islice

from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.model.job import TERMINAL
from holdfast.store import EventPage, LateStore, Store

STREAM_WAIT = timedelta(seconds=5)
LATE_WAIT = timedelta(milliseconds=250)
"""How long to trust a stream that may be late: PostgreSQL's waits for any open transaction."""
AT_ONCE = 1000
"""How many jobs to ask for in one go."""
RETRY_DELAY = 0.5


class JobWaiter:
    """Tells waiters when their job may have ended; reads the stream only while someone waits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._placed = asyncio.Event()

    async def watch(self, job_id: str) -> asyncio.Event:
        """Return an event that is set each time the job may have ended from now on."""
        ended = asyncio.Event()
        self._waiters[job_id].add(ended)
        if self._task is None or self._task.done():
            self._placed = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._follow(self._placed))
        await self._placed.wait()
        return ended

    def forget(self, job_id: str, ended: asyncio.Event) -> None:
        """Stop telling a waiter."""
        self._waiters[job_id].discard(ended)
        if not self._waiters[job_id]:
            del self._waiters[job_id]

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _follow(self, placed: asyncio.Event) -> None:
        cursor: str | None = None
        while self._waiters:
            try:
                page = await self._store.events(cursor, 1000 if cursor else 0, self._patience)
                if cursor is not None and not page.events:
                    await self._ask()
            except StoreError as error:
                if not isinstance(error, StoreUnavailableError):
                    placed.set()  # they will hear of it when they look for themselves
                await asyncio.sleep(RETRY_DELAY)
                self._tell_all()
                continue
            if cursor is not None:
                self._tell(page)
            cursor = page.cursor
            placed.set()

    @property
    def _patience(self) -> timedelta:
        return LATE_WAIT if isinstance(self._store, LateStore) else STREAM_WAIT

    async def _ask(self) -> None:
        """Ask a store whose stream may be late for what its waiters want to know."""
        if not isinstance(self._store, LateStore):
            self._tell_all()
            return
        asked = list(islice(self._waiters, AT_ONCE))
        for job_id in asked:  # whoever was asked for comes last the next time
            self._waiters[job_id] = self._waiters.pop(job_id)
        for job_id in await self._store.ended(asked):
            self._tell_ended(job_id)

    def _tell(self, page: EventPage) -> None:
        if page.gap:
            self._tell_all()
        for event in page.events:
            if event.transition is not None and event.transition.to_state in TERMINAL:
                self._tell_ended(event.job_id)

    def _tell_ended(self, job_id: str) -> None:
        for ended in self._waiters.get(job_id, ()):
            ended.set()

    def _tell_all(self) -> None:
        """Something may have been missed: let every waiter look for itself."""
        for waiting in self._waiters.values():
            for ended in waiting:
                ended.set()
