"""Waiting for jobs to end: one reader of the event stream for any number of waiters."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta

from holdfast.errors import StoreUnavailableError
from holdfast.job import TERMINAL
from holdfast.store import EventPage, Store

STREAM_WAIT = timedelta(seconds=5)
RETRY_DELAY = 0.5


class Watcher:
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
                page = await self._store.events(cursor, 1000 if cursor else 0, STREAM_WAIT)
            except StoreUnavailableError:
                await asyncio.sleep(RETRY_DELAY)
                self._tell_all()
                continue
            if cursor is not None:
                self._tell(page)
            cursor = page.cursor
            placed.set()

    def _tell(self, page: EventPage) -> None:
        if page.gap or not page.events:
            self._tell_all()
        for event in page.events:
            if event.transition is not None and event.transition.to_state in TERMINAL:
                for ended in self._waiters.get(event.job_id, ()):
                    ended.set()

    def _tell_all(self) -> None:
        """Something may have been missed: let every waiter look for itself."""
        for waiting in self._waiters.values():
            for ended in waiting:
                ended.set()
