"""Waking those in this process who wait for work or for news."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

from holdfast.store.sqlite.lane import tell


class Interest(StrEnum):
    """What someone waits for."""

    WORK = "work"
    """A job that may be claimed now, or will be due."""
    NEWS = "news"
    """Any event."""


class Bell:
    """Numbers that move when there may be work, and the waiters to be woken then.

    ``ring`` may be called in any thread; waiters may sit on any event loop.
    """

    def __init__(self) -> None:
        self.rung: Counter[Interest] = Counter()
        """How often it rang for whom."""
        self._work: Counter[str | None] = Counter()
        self._waiting: dict[Interest, set[asyncio.Future[None]]] = {i: set() for i in Interest}

    def count(self, queues: Sequence[str]) -> int:
        """Return a number that moves when one of these queues may have work."""
        return self._work[None] + sum(self._work[queue] for queue in queues)

    def ring(self, queues: Iterable[str | None], *, news: bool) -> None:
        """Tell that there may be work in these queues (None: in all), or other news."""
        rung = list(queues)
        self._work.update(rung)
        if rung:
            self._wake(Interest.WORK)
        if news:
            self._wake(Interest.NEWS)

    def _wake(self, interest: Interest) -> None:
        self.rung[interest] += 1
        for future in list(self._waiting[interest]):
            tell(future.get_loop(), _end, future)

    async def wait(self, interest: Interest, rung: int, seconds: float) -> bool:
        """Wait until it rang more often than that; False when the time is over first."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[interest].add(future)
        try:
            if self.rung[interest] != rung:
                return True
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiting[interest].discard(future)
        return True


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
