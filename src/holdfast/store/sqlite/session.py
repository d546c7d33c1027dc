"""One process's hold on the file: its lanes and connections, and what it hears of others.

A forked child leaves its parent's session alone and opens its own.
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
from holdfast.store.sqlite.threads import WriterThread
from holdfast.store.sqlite.wake import Herald, Interest, LocalBell
from holdfast.store.sqlite.writer import Operation, Transaction, Writer

T = TypeVar("T")

SLOWEST = 5
"""How many times longer the pauses get while nothing moves and messages tell of what does."""

_names = itertools.count(1)
_open: weakref.WeakSet[SQLiteSession] = weakref.WeakSet()


class SQLiteSession:
    """The store, opened in one process."""

    def __init__(
        self,
        location: Location,
        clock: Clock,
        lane: Callable[[str], WriterThread],
        *,
        sockets: bool,
        poll: float,
    ) -> None:
        self.pid = os.getpid()
        self._location = location
        self._lanes = (lane("holdfast-writer"), lane("holdfast-reader"))
        self._writer = Writer(location, clock, self._lanes[0], self._committed)
        self._reader = Reader(location, self._lanes[1])
        self._bell = LocalBell()
        self._sockets = sockets
        self._poll = self._pause = poll
        self._herald: Herald | None = None
        self._looked = 0.0
        self._version = self._number = self._settings = -1
        self._opened = asyncio.Event()
        self._closed = False

    async def open(self) -> None:
        """Open the file in both lanes."""
        try:
            await run_in(self._lanes[0], self._writer.open)
            await run_in(self._lanes[1], self._reader.open)
        except BaseException:
            await self.close()
            raise
        if self._sockets:
            self._herald = Herald.of(self._location.path, f"{self.pid}-{next(_names)}")
        _open.add(self)
        self._opened.set()
        await self._look()

    async def close(self) -> None:
        """Finish what was asked for, then let go of the file and wake who waits."""
        self._closed = True
        self._opened.set()
        _open.discard(self)
        self._bell.ring([None], news=True)
        await run_in(self._lanes[0], self._writer.close)
        await run_in(self._lanes[1], self._reader.close)
        for lane in self._lanes:
            lane.stop()
        if self._herald is not None:
            self._herald.close()

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
        await self._look()
        while True:
            rung = self.rung(Interest.WORK)
            count = self._bell.count(queues)
            if count != seen or not await self.wait(Interest.WORK, rung, deadline):
                return count

    def rung(self, interest: Interest) -> int:
        """Return how often there was something new; take it before looking."""
        return self._bell.rung[interest]

    async def wait(self, interest: Interest, rung: int, deadline: float) -> bool:
        """Wait for something new; False when the time is over, or the store closed."""
        loop = asyncio.get_running_loop()
        left = deadline - loop.time()
        if self._closed or left <= 0:
            return False
        if self._herald is not None:
            self._herald.listen(interest, self._heard)
        woken = await self._bell.wait(interest, rung, min(left, self._pause))
        if not woken and not self._closed and loop.time() - self._looked >= self._pause / 2:
            await self._look()
        return True

    def abandon(self) -> None:
        """Make sure that a forked child never touches what is the parent's."""
        for each in (self._writer, self._reader):
            if each.connection is not None:
                # Closing would end the parent's locks, so the connection must never be freed.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each.connection))
        if self._herald is not None:
            self._herald.abandon()

    def _committed(self, transaction: Transaction) -> None:
        """Wake who waits for what was just written; runs in the writer's lane."""
        if transaction.woken or transaction.told:
            self._bell.ring(transaction.woken, news=transaction.told)
            if self._herald is not None:
                self._herald.emit(transaction.woken, news=transaction.told)

    def _heard(self, queues: list[str | None]) -> None:
        self._bell.ring(queues, news=True)

    async def _look(self) -> None:
        """See what other processes wrote."""
        self._looked = asyncio.get_running_loop().time()
        await self._usable()
        queues, news = await self._reader.glance(self._glance)
        if news:
            self._bell.ring(queues, news=True)
        slower = not news and self._herald is not None  # else looking is all there is
        self._pause = min(2 * self._pause, SLOWEST * self._poll) if slower else self._poll

    def _glance(self, connection: sqlite3.Connection) -> tuple[list[str | None], bool]:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return [], False
        number, work, settings = connection.execute(statement("watch"), (self._number,)).fetchone()
        work = work or settings != self._settings
        news = work or number != self._number
        self._version, self._number, self._settings = version, number, settings
        return [None] if work else [], news

    async def _usable(self) -> None:
        """Wait for a start under way; refuse after the end."""
        await self._opened.wait()
        if self._closed:
            raise StoreError(f"{self._location.path} is closed")


def _abandon_all() -> None:
    for session in list(_open):
        session.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
