"""Looking at the store from outside while a run goes on."""

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

EVERY = 0.2
SLOW = 0.5
"""A write that takes longer, in seconds, means that the store was away."""

NAME = "torture"


class Watch:
    """Knows how far a run is and when the store did not answer."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self.ended = 0
        self.live = 0
        self.present: dict[int, str] = {}
        self.away: list[tuple[datetime, datetime]] = []
        """When the store did not answer, by its own clock."""
        self.looks = 0

    async def start(self) -> None:
        """Begin to look, over two connections: reads must not wait for writes."""
        for deed in (self._look, self._probe):
            store = await open_store(self._url).start()
            self._tasks.append(asyncio.ensure_future(_again_and_again(store, deed)))

    async def stop(self) -> None:
        """Look away."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lost(self, begin: datetime, end: datetime) -> float:
        """How many seconds between two instants the store was away."""
        gaps = [min(end, b) - max(begin, a) for a, b in self.away if a < end and b > begin]
        return sum(gap.total_seconds() for gap in gaps)

    async def _look(self, store: Store) -> None:
        ended = live = 0
        for tally in (await store.stats(timedelta(0))).tallies:
            if tally.state in TERMINAL:
                ended += tally.count
            else:
                live += tally.count
        self.ended, self.live = ended, live
        self.looks += 1
        self.present = {info.pid: info.id for info in await workers(store)}

    async def _probe(self, store: Store) -> None:
        """Write something; until that works the store is away."""
        begin, asked = store.now(), self._clock.monotonic()
        while True:
            try:
                await store.hold(NAME, NAME, timedelta(minutes=1))
            except StoreError:
                await asyncio.sleep(0.05)
            else:
                break
        if self._clock.monotonic() - asked > SLOW:
            self.away.append((begin, store.now()))


async def _again_and_again(store: Store, deed: Callable[[Store], Awaitable[None]]) -> None:
    try:
        while True:
            with contextlib.suppress(StoreError):
                await deed(store)
            await asyncio.sleep(EVERY)
    finally:
        await store.close()
