"""Trying for what somebody else still holds: of many who want it, one tries for all."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import TypeVar

R = TypeVar("R")


class SingleFlight:
    """Lets one caller at a time try for a key, and ``most`` at a time for all of them."""

    def __init__(self, most: int) -> None:
        self._wanted: Counter[Hashable] = Counter()
        self._tries: dict[Hashable, asyncio.Future[Exception | None]] = {}
        self._places = asyncio.Semaphore(most)

    def is_wanted(self, key: Hashable) -> bool:
        """Whether somebody waits for a key."""
        return key in self._wanted

    @contextlib.contextmanager
    def wanting(self, key: Hashable) -> Iterator[None]:
        """Wait for a key, trying now and then."""
        self._wanted[key] += 1
        try:
            yield
        finally:
            self._wanted[key] -= 1
            if not self._wanted[key]:
                del self._wanted[key]

    async def take(self, key: Hashable, call: Callable[[], Awaitable[R]]) -> R:
        """Make a call unless one for the same key is under way; if that fails, so does this."""
        while under_way := self._tries.get(key):
            if failure := await asyncio.shield(under_way):
                raise failure
        ended = self._tries[key] = asyncio.get_running_loop().create_future()
        failed: Exception | None = None
        try:
            async with self._places:
                return await call()
        except Exception as error:
            failed = error
            raise
        finally:
            del self._tries[key]
            ended.set_result(failed)
