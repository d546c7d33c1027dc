"""Waiting for work on BullMQ's markers.

Removing a marker wakes one worker, whose claim adds another when more jobs are ready. A marker
that led to no job here is returned, and its queue polled until a claim finds a job in it. Who
removes the marker of the next due job makes it ready: no other process learns of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta

from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.store.redis import fields
from holdfast.store.redis.client import RedisClient
from holdfast.store.redis.settings import RedisKeys

LONGEST = 5.0
"""Seconds of one blocking call at most; a dead connection is noticed that soon."""
POLL = 0.1
"""Seconds between two polls of a queue."""
NAMED_FOR = 60.0
"""Seconds for which a connection that only carries a queue's name is assumed to be open."""
LATEST = 2.0**41
"""The latest time of a marker that counts, in milliseconds: the year 2039."""
READY = b"0"
"""The marker of ready jobs; the other marker holds the time when the next job is due."""

ReturnMarkers = Callable[[Sequence[str]], Awaitable[list[bytes]]]
"""Returns the markers of queues that still have ready jobs, and the names of those queues."""
PromoteDue = Callable[[], Awaitable[datetime | None]]
"""Makes due jobs ready, and returns when the next one is due."""


class Arrivals:
    """A number that changes when there may be work."""

    def __init__(
        self,
        client: RedisClient,
        keys: RedisKeys,
        *,
        now: Callable[[], datetime],
        return_markers: ReturnMarkers,
        promote_due: PromoteDue,
    ) -> None:
        self._client = client
        self._keys = keys
        self._now = now
        self._return_markers = return_markers
        self._promote_due = promote_due
        self._due: datetime | None = None
        """When the next job is due, according to the markers removed here."""
        self._number = 0
        self._changed = asyncio.Event()
        self._claimed: dict[str, str] = {}
        """Queues from which this process claims, with the first worker that did."""
        self._unanswered: set[str] = set()
        """Queues whose marker was removed here, without a job claimed since."""
        self._polled: set[str] = set()
        """Queues whose ready jobs no worker of this process can claim."""
        self._newest: dict[str, object] = {}
        self._named_until: dict[str, float] = {}
        self._waiters: dict[object, Sequence[str]] = {}
        self._listener: asyncio.Task[None] | None = None
        self._listened: frozenset[str] = frozenset()

    def notify(self) -> None:
        """Change the number, and wake every waiter of this process."""
        self._number += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def claimed(self, queues: Sequence[str], found_in: Iterable[str], worker: str = "") -> None:
        """Record which queues a claim of a worker named, and in which it found jobs."""
        for queue in queues:
            self._claimed.setdefault(queue, worker)
        again = self._polled.intersection(queues)
        self._polled -= again
        self._unanswered |= again
        self._unanswered.difference_update(found_in)

    async def wait(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        """Return the number once it differs from ``seen``, or after ``wait``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait.total_seconds()
        waiter = object()
        self._waiters[waiter] = tuple(queues)
        try:
            while self._number == seen and (left := deadline - loop.time()) > 0:
                listener = self._listen_for(queues)
                changed = asyncio.ensure_future(self._changed.wait())
                try:
                    await asyncio.wait(
                        {listener, changed}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    changed.cancel()
                if listener.done() and not listener.cancelled():
                    listener.result()
        finally:
            del self._waiters[waiter]
        return self._number

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait({self._listener})
            self._listener = None

    def _listen_for(self, queues: Sequence[str]) -> asyncio.Task[None]:
        """Return the one listener of this process, which outlives the caller that started it.

        Cancelling it would cost its connection.
        """
        if self._listener is not None and not self._listener.done():
            if self._listened.issuperset(queues):
                return self._listener
            self._listener.cancel()
        self._listened = frozenset(q for each in self._waiters.values() for q in each)
        self._listener = asyncio.ensure_future(self._listen(sorted(self._listened)))
        self._listener.add_done_callback(_retrieve_exception)
        return self._listener

    async def _listen(self, queues: Sequence[str]) -> None:
        """Wait until there is work, or until one blocking call or poll interval is over."""
        if self._due is not None and self._due <= self._now():
            self._due = await self._promote_due()
        if unanswered := self._unanswered.intersection(queues):
            self._unanswered -= unanswered
            names = await self._return_markers(sorted(unanswered))
            self._polled.update(name.decode() for name in names)
        own = [q for q in queues if q in self._claimed and q not in self._polled]
        seconds = LONGEST if len(own) == len(queues) else POLL
        if own:
            await self._name_connections(own)
            await self._wait_or_poll(own, seconds)
        else:
            await asyncio.sleep(seconds)
        for queue in queues:
            if queue not in own:
                await self._poll(queue)

    async def _wait_or_poll(self, queues: Sequence[str], seconds: float) -> None:
        """Wait for a marker; poll queues from now on whose markers cannot be read."""
        try:
            await self._wait_for_marker(queues, seconds)
        except StoreUnavailableError:
            raise
        except StoreError:
            self._polled.update(queues)

    async def _name_connections(self, queues: Sequence[str]) -> None:
        """Keep a connection under each queue's name, by which BullMQ lists its workers."""
        now = asyncio.get_running_loop().time()
        for queue in queues[1:]:
            if now >= self._named_until.get(queue, 0.0):
                name = self._client_name(queue)
                await self._client.blocking(timedelta(0), "PING", name=name)
                self._named_until[queue] = now + NAMED_FOR

    def _client_name(self, queue: str) -> str:
        return self._keys.client_name(queue, self._claimed.get(queue, ""))

    async def _wait_for_marker(self, queues: Sequence[str], seconds: float) -> None:
        markers = {self._keys.queue(queue, "marker"): queue for queue in queues}
        if self._due is not None:
            seconds = max(0.0, min(seconds, (self._due - self._now()).total_seconds()))
        answer = await self._client.blocking(
            timedelta(seconds=seconds),
            *("BZPOPMIN", *markers, f"{max(seconds, 0.001):.3f}"),
            name=self._client_name(queues[0]),
        )
        if answer is not None:
            marker, member, score = answer
            queue = markers[marker.decode()]
            if member == READY:
                self._unanswered.add(queue)
            else:
                self._learn_due(float(score))
            self.notify()
            if not self._waiters:
                await self._return_marker(queue)

    def _learn_due(self, milliseconds: float) -> None:
        due = fields.EPOCH + min(milliseconds, LATEST) * fields.MILLISECOND
        self._due = due if self._due is None else min(self._due, due)

    async def _return_marker(self, queue: str) -> None:
        """Return a marker to other processes, because no caller waits here any more."""
        self._unanswered.discard(queue)
        await self._return_markers([queue])

    async def _poll(self, queue: str) -> None:
        """Notify when a queue has a new event since the last poll."""
        stream = self._keys.queue(queue, "events")
        try:
            answer = await self._client.command("XREVRANGE", stream, "+", "-", "COUNT", 1)
        except StoreUnavailableError:
            raise
        except StoreError:  # no stream: the claims of this queue report it
            answer = []
        newest = [each[0] for each in answer]
        if queue not in self._newest or self._newest[queue] != newest:
            self._newest[queue] = newest
            self.notify()


def _retrieve_exception(listener: asyncio.Task[None]) -> None:
    """Mark an exception as retrieved: there may be no waiter left to receive it."""
    if not listener.cancelled():
        listener.exception()
