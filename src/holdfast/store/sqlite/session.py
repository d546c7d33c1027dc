"""The store as one process has it open: executors, connections and wake-ups.

A forked child does not touch its parent's session and opens its own.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from holdfast.errors import StoreError
from holdfast.runtime.clock import Clock
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.reader import Reader, run_in
from holdfast.store.sqlite.threads import SerialExecutor
from holdfast.store.sqlite.wake import Interest, LocalWake, SocketWake
from holdfast.store.sqlite.writer import Operation, Transaction, Writer

T = TypeVar("T")

SLOWEST_POLL = 5
"""How many times longer the poll interval gets while nothing changes and messages arrive."""

_names = itertools.count(1)
_open: weakref.WeakSet[SQLiteSession] = weakref.WeakSet()


class SQLiteSession:
    """An open store in one process."""

    def __init__(
        self,
        location: Location,
        clock: Clock,
        executor: Callable[[str], SerialExecutor],
        *,
        sockets: bool,
        poll: float,
    ) -> None:
        self.pid = os.getpid()
        self._location = location
        self._executors = (executor("holdfast-writer"), executor("holdfast-reader"))
        self._writer = Writer(location, clock, self._executors[0], self._committed)
        self._reader = Reader(location, self._executors[1])
        self._local_wake = LocalWake()
        self._sockets = sockets
        self._poll = self._interval = poll
        self._socket_wake: SocketWake | None = None
        self._polled_at = 0.0
        self._version = self._number = self._settings = -1
        self._opened = asyncio.Event()
        self._closed = False

    async def open(self) -> None:
        """Open the file for writing and reading."""
        try:
            await run_in(self._executors[0], self._writer.open)
            await run_in(self._executors[1], self._reader.open)
        except BaseException:
            await self.close()
            raise
        if self._sockets:
            self._socket_wake = SocketWake.of(self._location.path, f"{self.pid}-{next(_names)}")
        _open.add(self)
        self._opened.set()
        await self._poll_file()

    async def close(self) -> None:
        """Finish pending writes, close the file and wake all waiters."""
        self._closed = True
        self._opened.set()
        _open.discard(self)
        self._local_wake.wake([None], events=True)
        await run_in(self._executors[0], self._writer.close)
        await run_in(self._executors[1], self._reader.close)
        for executor in self._executors:
            executor.stop()
        if self._socket_wake is not None:
            self._socket_wake.close()

    async def write(self, operation: Operation[T]) -> T:
        """Run an operation in the next transaction."""
        await self._usable()
        return await self._writer.write(operation)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query on one state of the file."""
        await self._usable()
        return await self._reader.read(query)

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        """Wait for work; see ``Store.arrivals``."""
        deadline = asyncio.get_running_loop().time() + wait.total_seconds()
        await self._poll_file()
        while True:
            wakes = self.wakes(Interest.WORK)
            count = self._local_wake.count(queues)
            if count != seen or not await self.wait(Interest.WORK, wakes, deadline):
                return count

    def wakes(self, interest: Interest) -> int:
        """Return the number of wake-ups so far; take it before reading the store."""
        return self._local_wake.wakes[interest]

    async def wait(self, interest: Interest, wakes: int, deadline: float) -> bool:
        """Wait for a wake-up or the next poll; False at the deadline or when closed."""
        loop = asyncio.get_running_loop()
        left = deadline - loop.time()
        if self._closed or left <= 0:
            return False
        if self._socket_wake is not None:
            self._socket_wake.listen(interest, self._on_message)
        woken = await self._local_wake.wait(interest, wakes, min(left, self._interval))
        if not woken and not self._closed and loop.time() - self._polled_at >= self._interval / 2:
            await self._poll_file()
        return True

    def abandon(self) -> None:
        """Ensure that a forked child never touches the parent's connections."""
        for each in (self._writer, self._reader):
            if each.connection is not None:
                # Closing would end the parent's locks, so the connection must never be freed.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each.connection))
        if self._socket_wake is not None:
            self._socket_wake.abandon()

    def _committed(self, transaction: Transaction) -> None:
        """Wake those that wait for what was just written; runs in the writer's thread."""
        if transaction.woken or transaction.has_events:
            self._local_wake.wake(transaction.woken, events=transaction.has_events)
            if self._socket_wake is not None:
                self._socket_wake.send(transaction.woken, events=transaction.has_events)

    def _on_message(self, queues: list[str | None]) -> None:
        self._local_wake.wake(queues, events=True)

    async def _poll_file(self) -> None:
        """Find out what other processes wrote."""
        self._polled_at = asyncio.get_running_loop().time()
        await self._usable()
        queues, events = await self._reader.peek(self._changes)
        if events:
            self._local_wake.wake(queues, events=True)
        # Without messages between processes, polling stays fast.
        slower = not events and self._socket_wake is not None
        self._interval = (
            min(2 * self._interval, SLOWEST_POLL * self._poll) if slower else self._poll
        )

    def _changes(self, connection: sqlite3.Connection) -> tuple[list[str | None], bool]:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return [], False
        number, work, settings = connection.execute(statement("watch"), (self._number,)).fetchone()
        work = work or settings != self._settings
        events = work or number != self._number
        self._version, self._number, self._settings = version, number, settings
        return [None] if work else [], events

    async def _usable(self) -> None:
        """Wait until the store is open; raise when it is closed."""
        await self._opened.wait()
        if self._closed:
            raise StoreError(f"{self._location.path} is closed")


def _abandon_all() -> None:
    for session in list(_open):
        session.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
