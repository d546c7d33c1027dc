"""Watches the store from outside during a run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from holdfast.errors import StoreError
from holdfast.model.job import TERMINAL
from holdfast.operations.workers import workers
from holdfast.runtime.clock import Clock
from holdfast.store import Store, open_store

INTERVAL = 0.2
SLOW = 0.5
"""A write that takes longer, in seconds, counts as an outage of the store."""

NAME = "torture"


class StoreMonitor:
    """Knows how many jobs have ended and when the store was unavailable."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self.ended = 0
        self.live = 0
        self.workers: dict[int, str] = {}
        self.outages: list[tuple[datetime, datetime]] = []
        """When the store was unavailable, by its own clock."""
        self.reads = 0

    async def start(self) -> None:
        """Start to watch, over two connections, because reads must not wait for writes."""
        for action in (self._read, self._probe):
            store = await open_store(self._url).start()
            self._tasks.append(asyncio.ensure_future(_repeat(store, action)))

    async def stop(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def outage_seconds(self, begin: datetime, end: datetime) -> float:
        """Return for how long the store was unavailable between two instants."""
        gaps = [min(end, b) - max(begin, a) for a, b in self.outages if a < end and b > begin]
        return sum(gap.total_seconds() for gap in gaps)

    async def _read(self, store: Store) -> None:
        ended = live = 0
        for tally in (await store.stats(timedelta(0))).tallies:
            if tally.state in TERMINAL:
                ended += tally.count
            else:
                live += tally.count
        self.ended, self.live = ended, live
        self.reads += 1
        self.workers = {info.pid: info.id for info in await workers(store)}

    async def _probe(self, store: Store) -> None:
        """Write something; the store is unavailable until that succeeds."""
        begin, started = store.now(), self._clock.monotonic()
        while True:
            try:
                await store.lock(NAME, NAME, timedelta(minutes=1))
            except StoreError:
                await asyncio.sleep(0.05)
            else:
                break
        if self._clock.monotonic() - started > SLOW:
            self.outages.append((begin, store.now()))


async def _repeat(store: Store, action: Callable[[Store], Awaitable[None]]) -> None:
    try:
        while True:
            with contextlib.suppress(StoreError):
                await action(store)
            await asyncio.sleep(INTERVAL)
    finally:
        await store.close()
