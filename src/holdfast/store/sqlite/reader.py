"""Reads on connections of their own: readers and the writer never block each other."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from holdfast.store.sqlite.connection import CACHE_KIBIBYTES, OpenFile, connect, translated
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import SerialExecutor, call_on

T = TypeVar("T")


MOST_READERS = 4
"""How many reads run at once: a slow search delays no other read."""

SMALL_CACHE_KIBIBYTES = 8_192
"""The cache of every connection but the first, which alone serves a program with few reads."""


class Reader:
    """Runs reads in an executor; each sees one state of the file."""

    def __init__(
        self, location: Location, executor: SerialExecutor, cache: int, first: Reader | None
    ) -> None:
        self._first = first or self
        """The reader that opened the file: a later one may meet a file that replaced it."""
        self._location = location
        self._cache = cache
        self.executor = executor
        self.pending = 0
        """Reads that wait or run."""
        self.connection: sqlite3.Connection | None = None
        self._file: OpenFile
        """Set when the connection is."""

    def open(self) -> None:
        """Open the file unless it is open; runs in the executor."""
        if self.connection is None:
            if self._first is not self:
                self._same_file()  # even to open another file may harm the log of this one
            opened = connect(self._location, read_only=True, cache=self._cache)
            try:
                self._file = self._same_file()
            except BaseException:
                opened.close()
                raise
            self.connection = opened

    def _same_file(self) -> OpenFile:
        if self._first is self:
            return OpenFile(self._location.path)
        self._first._file.check()
        return self._first._file

    def close(self) -> None:
        """Close the file; runs in the executor."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def peek(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query outside of any transaction; runs in the executor."""
        assert self.connection is not None
        self._file.check()
        with translated(self._location.path):
            return query(self.connection)

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in a transaction; runs in the executor."""
        self.open()
        connection = self.connection
        assert connection is not None
        self._file.check()
        with translated(self._location.path):
            connection.execute("BEGIN")
            try:
                return query(connection)
            finally:
                if connection.in_transaction:  # SQLite itself ends one after a disk error
                    connection.execute("COMMIT")


class Readers:
    """Several readers of a file: more than one only while reads wait for each other."""

    def __init__(self, location: Location, executor: Callable[[str], SerialExecutor]) -> None:
        self._location = location
        self._executor = executor
        self._lock = threading.Lock()
        self._readers = [self._reader(CACHE_KIBIBYTES, None)]

    def __iter__(self) -> Iterator[Reader]:
        return iter(self._readers)

    async def open(self) -> None:
        """Open the first reader."""
        await run_in(self._readers[0].executor, self._readers[0].open)

    async def close(self) -> None:
        """Close all readers and end their executors."""
        for reader in self._readers:
            await run_in(reader.executor, reader.close)
            reader.executor.stop()

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query on one state of the file and return its answer."""
        reader = self._least_busy()
        return await run_in(_Counted(reader, self._lock), lambda: reader.read(query))

    async def peek(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query outside of any transaction, always on the same connection."""
        first = self._readers[0]
        return await run_in(first.executor, lambda: first.peek(query))

    def _least_busy(self) -> Reader:
        """Return a reader without work, or a new one, or the one with the fewest reads."""
        with self._lock:
            reader = min(self._readers, key=lambda each: each.pending)
            if reader.pending and len(self._readers) < MOST_READERS:
                reader = self._reader(SMALL_CACHE_KIBIBYTES, self._readers[0])
                self._readers.append(reader)
            reader.pending += 1
            return reader

    def _reader(self, cache: int, first: Reader | None) -> Reader:
        return Reader(self._location, self._executor("holdfast-reader"), cache, first)


class _Counted(NamedTuple):
    """The executor of a reader; counts down when a read has ended, even if it was cancelled."""

    reader: Reader
    lock: threading.Lock

    def post(self, call: Callable[[], None]) -> None:
        def run() -> None:
            call()
            with self.lock:
                self.reader.pending -= 1

        self.reader.executor.post(run)


class Poster(Protocol):
    """Runs a call, which never raises, soon."""

    def post(self, call: Callable[[], None]) -> None: ...


async def run_in(executor: Poster, call: Callable[[], T]) -> T:
    """Run a call in an executor and return its result, or raise its error."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        if future.cancelled():
            return
        try:
            answer = call()
        except Exception as error:  # noqa: BLE001  # raised where it is awaited
            settle = functools.partial(future.set_exception, error)
        else:
            settle = functools.partial(future.set_result, answer)
        call_on(loop, lambda: None if future.done() else settle())

    executor.post(run)
    return await future
