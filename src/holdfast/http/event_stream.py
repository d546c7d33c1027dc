"""The end of the event stream, read once for any number of subscribers.

One reader follows the store and keeps the newest events in a ring. A subscriber is a position in
it and costs no thread and no query while nothing happens; one that is behind the ring reads the
store by itself until it has caught up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from datetime import timedelta
from typing import Any

from holdfast.errors import StoreError
from holdfast.http.endpoint import Stream
from holdfast.store import JobEvent, Store

RING = 10_000
PAGE = 500
LOOK = timedelta(seconds=5)
RETRY = 0.5


class EventTail:
    """Follows the stream while anyone listens."""

    def __init__(self, store: Store, *, ring: int = RING) -> None:
        self._store = store
        self._most = ring
        self._ring: list[JobEvent] = []
        self._first = 0
        """The number of the oldest event in the ring, counted from the start of this reader."""
        self._places: dict[str, int] = {}
        """Cursor -> number of the event it belongs to."""
        self._cursor: str | None = None
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.listeners = 0

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def follow(self, after: str | None) -> AsyncIterator[list[JobEvent] | None]:
        """Yield events as they happen, from now or after a cursor; None: some were dropped.

        An empty list comes when nothing happened for a while.
        """
        self.listeners += 1
        try:
            await self._placed()
            cursor = after if after is not None else self._cursor
            assert cursor is not None
            while True:
                await self._placed()
                place = self._place(cursor)
                if place is None:
                    page = await self._store.events(cursor, PAGE, timedelta(0))
                    if page.gap:
                        yield None
                    cursor, events = page.cursor, list(page.events)
                    patience = RETRY
                else:
                    events = self._ring[place - self._first :][:PAGE]
                    cursor = events[-1].cursor if events else cursor
                    patience = LOOK.total_seconds()
                if events or not await self._moved(patience):
                    yield events
        finally:
            self.listeners -= 1

    def _place(self, cursor: str) -> int | None:
        """The number of the event after a cursor, if the ring knows the cursor."""
        if cursor == self._cursor:
            return self._first + len(self._ring)
        at = self._places.get(cursor)
        return None if at is None or at + 1 < self._first else at + 1

    async def _placed(self) -> None:
        """Start the reader if there is none, and wait until it knows where the stream ends."""
        if self._task is None or self._task.done():
            page = await self._store.events(None, 0, timedelta(0))
            if self._task is None or self._task.done():
                self._ring, self._places, self._first = [], {}, 0
                self._cursor = page.cursor
                self._task = asyncio.get_running_loop().create_task(self._read())

    async def _moved(self, seconds: float) -> bool:
        news = self._news
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            return False
        return True

    async def _read(self) -> None:
        while self.listeners:
            assert self._cursor is not None
            try:
                page = await self._store.events(self._cursor, PAGE, LOOK)
            except StoreError:
                await asyncio.sleep(RETRY)
                continue
            if page.gap:
                self._first += len(self._ring)
                self._ring, self._places = [], {}
            else:
                self._places[self._cursor] = self._first + len(self._ring) - 1
            for event in page.events:
                self._places[event.cursor] = self._first + len(self._ring)
                self._ring.append(event)
            self._cursor = page.cursor
            self._trim()
            if page.events:
                self._news.set()
                self._news = asyncio.Event()

    def _trim(self) -> None:
        extra = len(self._ring) - self._most
        if extra > 0:
            for event in self._ring[:extra]:
                self._places.pop(event.cursor, None)
            del self._ring[:extra]
            self._first += extra


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def streamed(
    stream: Stream, request_id: str, stopping: asyncio.Event, receive: Receive, send: Send
) -> None:
    """Send chunk by chunk; a client that reads slowly slows down only its own stream."""
    headers = [
        (b"content-type", stream.media_type.encode()),
        (b"x-request-id", request_id.encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    loop = asyncio.get_running_loop()
    pump = loop.create_task(_pump(stream, send))
    ends = [loop.create_task(_left(receive)), loop.create_task(_wait(stopping)), pump]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in ends:
            task.cancel()
        await asyncio.wait(ends)
    with contextlib.suppress(OSError):
        await send({"type": "http.response.body", "body": b""})


async def _pump(stream: Stream, send: Send) -> None:
    async with contextlib.aclosing(stream.chunks) as chunks:  # type: ignore[type-var]  # generators
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
