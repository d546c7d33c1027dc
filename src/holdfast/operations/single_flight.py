"""Retries for a key that many callers want: one of them tries on behalf of all."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import TypeVar

R = TypeVar("R")


class SingleFlight:
    """Runs one call at a time per key, and at most ``most`` at a time for all keys."""

    def __init__(self, most: int) -> None:
        self._waiting: Counter[Hashable] = Counter()
        self._running: dict[Hashable, asyncio.Future[Exception | None]] = {}
        self._slots = asyncio.Semaphore(most)

    def is_awaited(self, key: Hashable) -> bool:
        """Whether a caller waits for a key."""
        return key in self._waiting

    @contextlib.contextmanager
    def waiting(self, key: Hashable) -> Iterator[None]:
        """Count the caller as waiting for a key."""
        self._waiting[key] += 1
        try:
            yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]

    async def run(self, key: Hashable, call: Callable[[], Awaitable[R]]) -> R:
        """Await a call after any other one for the same key; fail with that one if it fails."""
        while running := self._running.get(key):
            if failure := await asyncio.shield(running):
                raise failure
        ended = self._running[key] = asyncio.get_running_loop().create_future()
        failed: Exception | None = None
        try:
            async with self._slots:
                return await call()
        except Exception as error:
            failed = error
            raise
        finally:
            del self._running[key]
            ended.set_result(failed)
