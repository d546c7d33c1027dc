"""The store as one process has it open: its share of the file, and the callers that wait.

A forked child does not touch its parent's session and opens its own.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from holdfast.errors import StoreError
from holdfast.store.sqlite.shared import FILES, FileSettings
from holdfast.store.sqlite.transaction import Operation
from holdfast.store.sqlite.wake import Interest

T = TypeVar("T")


class SQLiteSession:
    """An open store in one process."""

    def __init__(self, settings: FileSettings) -> None:
        self.pid = os.getpid()
        self._path = settings.location.path
        self._file = FILES.take(settings)
        self._opened = asyncio.Event()
        self._closed = False

    async def open(self) -> None:
        """Open the file for writing and reading."""
        try:
            await self._file.open()
            await self._file.poll()
        except BaseException:
            await self.close()
            raise
        self._opened.set()

    async def close(self) -> None:
        """Finish pending writes, end all waits of this store and give the file back."""
        self._closed = True
        self._opened.set()
        self._file.local_wake.end(self)
        await FILES.give_back(self._file)

    async def write(self, operation: Operation[T]) -> T:
        """Run an operation in the next transaction."""
        await self._usable()
        return await self._file.writer.write(operation)

    def write_now(self, operation: Operation[T], *, patient: bool) -> T | None:
        """Run an operation in this thread; None when ``write`` must do it."""
        if self._closed or not self._opened.is_set():
            return None
        return self._file.writer.write_now(operation, patient=patient)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query on one state of the file."""
        await self._usable()
        return await self._file.readers.read(query)

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        """Wait for work; see ``Store.arrivals``."""
        deadline = asyncio.get_running_loop().time() + wait.total_seconds()
        await self._usable()
        await self._file.poll()
        while True:
            wakes = self.wakes(Interest.WORK)
            count = self._file.local_wake.count(queues)
            if count != seen or not await self.wait(Interest.WORK, wakes, deadline):
                return count

    def wakes(self, interest: Interest) -> int:
        """Return the number of wake-ups so far; take it before reading the store."""
        return self._file.local_wake.wakes[interest]

    async def wait(self, interest: Interest, wakes: int, deadline: float) -> bool:
        """Wait for a wake-up or the next poll; False at the deadline or when closed."""
        left = deadline - asyncio.get_running_loop().time()
        if self._closed or left <= 0:
            return False
        await self._file.wait(interest, wakes, left, owner=self)
        return not self._closed

    async def _usable(self) -> None:
        """Wait until the store is open; raise when it is closed."""
        await self._opened.wait()
        if self._closed:
            raise StoreError(f"{self._path} is closed")
