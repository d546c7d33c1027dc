"""Waits for jobs to end: one reader of the event stream for any number of callers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta
from itertools import islice

from holdfast.errors import StoreUnavailableError
from holdfast.model.job import TERMINAL
from holdfast.store import EventPage, JobEvent, Store

STREAM_WAIT = timedelta(seconds=5)
"""How long one read of the event stream waits for events."""
LATE_WAIT = timedelta(milliseconds=250)
"""The same for a stream that may lag: PostgreSQL's waits for every open transaction."""
MOST_READ = 1000
"""How many jobs one read checks."""
RETRY_DELAY = 0.5


class JobWaiter:
    """Wakes callers when their job may have ended; reads the stream only while a caller waits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._ends: dict[str, JobEvent] = {}
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def add(self, job_id: str) -> asyncio.Event:
        """Return an event that is set each time the job may have ended."""
        ended = asyncio.Event()
        self._events[job_id].add(ended)
        if self._task is None or self._task.done():
            self._ready = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._follow(self._ready))
        await self._ready.wait()
        return ended

    def remove(self, job_id: str, ended: asyncio.Event) -> None:
        """Stop setting an event."""
        self._events[job_id].discard(ended)
        if not self._events[job_id]:
            del self._events[job_id]
            self._ends.pop(job_id, None)

    def end_of(self, job_id: str) -> JobEvent | None:
        """Return the event with which a job ended that a caller waits for, if it was read."""
        return self._ends.get(job_id)

    async def close(self) -> None:
        """Stop reading the stream."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _follow(self, ready: asyncio.Event) -> None:
        cursor: str | None = None
        while self._events:
            try:
                page = await self._store.events(cursor, 1000 if cursor else 0, self._stream_wait)
                if cursor is not None and not page.events:
                    await self._read_ended()
            except Exception as error:  # noqa: BLE001  # nothing else observes this task
                if not isinstance(error, StoreUnavailableError):
                    ready.set()  # the callers get the error when they read their jobs
                await asyncio.sleep(RETRY_DELAY)
                self._wake_all()
                continue
            if cursor is not None:
                self._wake(page)
            cursor = page.cursor
            ready.set()

    @property
    def _stream_wait(self) -> timedelta:
        return LATE_WAIT if self._store.capabilities.events_may_lag else STREAM_WAIT

    async def _read_ended(self) -> None:
        """Read which jobs have ended, from a store whose stream may lag."""
        if not self._store.capabilities.events_may_lag:
            self._wake_all()
            return
        job_ids = list(islice(self._events, MOST_READ))
        for job_id in job_ids:  # the next read begins with the others
            self._events[job_id] = self._events.pop(job_id)
        for job_id in await self._store.ended(job_ids):
            self._wake_job(job_id)

    def _wake(self, page: EventPage) -> None:
        if page.gap:
            self._wake_all()
        for event in page.events:
            if event.transition is not None and event.transition.to_state in TERMINAL:
                if event.job_id in self._events:
                    self._ends[event.job_id] = event
                self._wake_job(event.job_id)

    def _wake_job(self, job_id: str) -> None:
        for ended in self._events.get(job_id, ()):
            ended.set()

    def _wake_all(self) -> None:
        """Wake every caller to read its job: events may have been missed."""
        for waiting in self._events.values():
            for ended in waiting:
                ended.set()
