"""A file as one process has it open: one writer, a few readers, one set of sockets.

Stores of a process that open the same path with the same options share all that: 200 workers
need no more threads and descriptors than one. The last one that closes it closes the file.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import sqlite3
import threading
from collections.abc import Callable, Hashable
from typing import NamedTuple

import msgspec

from holdfast.errors import StoreUnavailableError
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.reader import Readers, run_in
from holdfast.store.sqlite.threads import SerialExecutor, ThreadExecutor
from holdfast.store.sqlite.transaction import Transaction
from holdfast.store.sqlite.wake import Interest, LocalWake, SocketWake
from holdfast.store.sqlite.writer import Writer

SLOWEST_POLL = 5
"""How many times longer the poll interval gets while nothing changes and messages arrive."""

_names = itertools.count(1)


class FileSettings(NamedTuple):
    """What stores must have in common to share a file."""

    location: Location
    clock: Clock
    executor: Callable[[str], SerialExecutor]
    sockets: bool
    poll: float

    def key(self) -> Hashable:
        """Return what two stores that may share have in common.

        The path is part of it: each store notices when its own name of the file is taken away.
        A file that replaced another one is not the same.
        """
        if self.executor is not ThreadExecutor:
            return object()  # a simulated process, which shares nothing
        path = self.location.path.absolute()
        try:
            found = path.stat()
        except OSError as error:
            raise StoreUnavailableError(f"cannot open {path}: {error.strerror}") from error
        clock = SystemClock if type(self.clock) is SystemClock else self.clock
        location = msgspec.structs.replace(self.location, path=path)
        return location, found.st_dev, found.st_ino, clock, self.sockets, self.poll


class SharedFile:
    """Executors, connections and wake-ups of an open file, for stores on any event loop."""

    def __init__(self, settings: FileSettings) -> None:
        self.users = 0
        self._settings = settings
        location, clock, executor, *_ = settings
        self._executor = executor("holdfast-writer")
        self.writer = Writer(location, clock, self._executor, self._committed)
        self.readers = Readers(location, executor)
        self.local_wake = LocalWake()
        self._socket_wake: SocketWake | None = None
        self._interval = settings.poll
        self._polled_at = 0.0
        self._version = self._number = self._revision = -1

    async def open(self) -> None:
        """Open the file for writing and reading; do nothing if it is open."""
        await run_in(self._executor, self.writer.open)
        await self.readers.open()
        await run_in(self._executor, self._open_sockets)

    async def close(self) -> None:
        """Write pending operations and close the file."""
        await run_in(self._executor, self.writer.close)
        await self.readers.close()
        self._executor.stop()
        if self._socket_wake is not None:
            self._socket_wake.close()

    async def flush(self) -> None:
        """Return when the operations that wait now are written."""
        await run_in(self._executor, self.writer.drain)

    async def wait(self, interest: Interest, wakes: int, seconds: float, owner: object) -> None:
        """Wait for a wake-up, or poll when it is time to; at most so many seconds."""
        if self._socket_wake is not None:
            self._socket_wake.listen(interest, self._on_message)
        seconds = min(seconds, self._interval)
        woken = await self.local_wake.wait(interest, wakes, seconds, owner)
        now = asyncio.get_running_loop().time()
        if not woken and now - self._polled_at >= self._interval / 2:
            await self.poll()

    async def poll(self) -> None:
        """Find out what other processes wrote."""
        self._polled_at = asyncio.get_running_loop().time()
        queues, events = await self.readers.peek(self._changes)
        if events:
            self.local_wake.wake(queues, events=True)
        # Without messages between processes, polling stays fast.
        slower = not events and self._socket_wake is not None
        poll = self._settings.poll
        self._interval = min(2 * self._interval, SLOWEST_POLL * poll) if slower else poll

    def abandon(self) -> None:
        """Ensure that a forked child never touches the parent's connections."""
        for each in (self.writer, *self.readers):
            if each.connection is not None:
                # Closing would end the parent's locks, so the connection must never be freed.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each.connection))
        if self._socket_wake is not None:
            self._socket_wake.abandon()

    def _open_sockets(self) -> None:
        if self._settings.sockets and self._socket_wake is None:
            name = f"{os.getpid()}-{next(_names)}"
            self._socket_wake = SocketWake.of(self._settings.location.path, name)

    def _committed(self, transaction: Transaction) -> None:
        """Wake those that wait for what was just written; runs in the writer's thread."""
        if transaction.woken or transaction.has_events:
            self.local_wake.wake(transaction.woken, events=transaction.has_events)
            if self._socket_wake is not None:
                self._socket_wake.send(transaction.woken, events=transaction.has_events)

    def _on_message(self, queues: list[str | None]) -> None:
        self.local_wake.wake(queues, events=True)

    def _changes(self, connection: sqlite3.Connection) -> tuple[list[str | None], bool]:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return [], False
        number, work, revision = connection.execute(statement("watch"), (self._number,)).fetchone()
        work = work or revision != self._revision
        events = work or number != self._number
        self._version, self._number, self._revision = version, number, revision
        return [None] if work else [], events


class SharedFiles:
    """The open files of this process, with the number of stores that use each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Hashable, SharedFile] = {}

    def take(self, settings: FileSettings) -> SharedFile:
        """Return the file for one more store; it is opened by the first that opens it."""
        key = settings.key()
        with self._lock:
            file = self._open.get(key)
            if file is None:
                file = self._open[key] = SharedFile(settings)
            file.users += 1
            return file

    async def give_back(self, file: SharedFile) -> None:
        """Write what the store left, and close the file if no other store uses it."""
        with self._lock:
            file.users -= 1
            is_last = not file.users
            if is_last:
                self._open = {key: each for key, each in self._open.items() if each is not file}
        await (file.close() if is_last else file.flush())

    def abandon(self) -> None:
        """Forget all files, in a forked child; another thread may have held the lock."""
        self._lock = threading.Lock()
        for file in self._open.values():
            file.abandon()
        self._open = {}


FILES = SharedFiles()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FILES.abandon)
