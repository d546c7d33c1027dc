"""The end of the event stream, read once for any number of subscribers.

One reader follows the store and keeps the newest events in a buffer. A subscriber is a position
in the buffer: while nothing happens it costs no thread and no query. A subscriber behind the
buffer reads the store itself until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from holdfast.store import JobEvent, Store

BUFFER = 10_000
"""Events in the buffer."""
PAGE = 500
MAX_WAIT = timedelta(seconds=5)
"""How long one read waits for events; subscribers get a keep-alive after so long."""
RETRY_DELAY = 0.5


class EventTail:
    """Follows the event stream while it has subscribers."""

    def __init__(self, store: Store, *, buffer: int = BUFFER) -> None:
        self._store = store
        self._size = buffer
        self._buffer: list[JobEvent] = []
        self._first = 0
        """The number of the oldest buffered event, counted from the start of this reader."""
        self._numbers: dict[str, int] = {}
        """Cursor -> number of its event."""
        self._cursor: str | None = None
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.subscribers = 0

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def follow(self, after: str | None) -> AsyncIterator[list[JobEvent] | None]:
        """Yield events as they happen, from now or after a cursor; None: some were dropped.

        Yields an empty list when nothing happened for a while.
        """
        self.subscribers += 1
        try:
            await self._ensure_reader()
            cursor = after if after is not None else self._cursor
            assert cursor is not None
            while True:
                await self._ensure_reader()
                number = self._next_number(cursor)
                if number is None:
                    page = await self._store.events(cursor, PAGE, timedelta(0))
                    if page.gap:
                        yield None
                    cursor, events = page.cursor, list(page.events)
                    wait = RETRY_DELAY
                else:
                    events = self._buffer[number - self._first :][:PAGE]
                    cursor = events[-1].cursor if events else cursor
                    wait = MAX_WAIT.total_seconds()
                if events or not await self._events_arrive(wait):
                    yield events
        finally:
            self.subscribers -= 1

    def _next_number(self, cursor: str) -> int | None:
        """Return the number of the event after a cursor; None when the buffer begins later."""
        if cursor == self._cursor:
            return self._first + len(self._buffer)
        number = self._numbers.get(cursor)
        return None if number is None or number + 1 < self._first else number + 1

    async def _ensure_reader(self) -> None:
        """Start the reader if none runs; afterwards the end of the stream is known."""
        if self._task is None or self._task.done():
            page = await self._store.events(None, 0, timedelta(0))
            if self._task is None or self._task.done():
                self._buffer, self._numbers, self._first = [], {}, 0
                self._cursor = page.cursor
                self._task = asyncio.get_running_loop().create_task(self._read())

    async def _events_arrive(self, seconds: float) -> bool:
        arrived = self._arrived
        try:
            async with asyncio.timeout(seconds):
                await arrived.wait()
        except TimeoutError:
            return False
        return True

    async def _read(self) -> None:
        while self.subscribers:
            assert self._cursor is not None
            try:
                page = await self._store.events(self._cursor, PAGE, MAX_WAIT)
            except Exception:  # noqa: BLE001  # subscribers wait; their own calls get the error
                await asyncio.sleep(RETRY_DELAY)
                continue
            if page.gap:
                self._first += len(self._buffer)
                self._buffer, self._numbers = [], {}
            else:
                self._numbers[self._cursor] = self._first + len(self._buffer) - 1
            for event in page.events:
                self._numbers[event.cursor] = self._first + len(self._buffer)
                self._buffer.append(event)
            self._cursor = page.cursor
            self._trim()
            if page.events:
                self._arrived.set()
                self._arrived = asyncio.Event()

    def _trim(self) -> None:
        extra = len(self._buffer) - self._size
        if extra > 0:
            for event in self._buffer[:extra]:
                self._numbers.pop(event.cursor, None)
            del self._buffer[:extra]
            self._first += extra
