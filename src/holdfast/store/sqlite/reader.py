"""Reads on a connection of their own: readers and the writer never block each other."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from holdfast.store.sqlite.connection import OpenFile, connect, translated
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import SerialExecutor, call_on

T = TypeVar("T")


class Reader:
    """Runs reads in an executor; each sees one state of the file."""

    def __init__(self, location: Location, executor: SerialExecutor) -> None:
        self._location = location
        self._executor = executor
        self.connection: sqlite3.Connection | None = None
        self._file: OpenFile
        """Set when the connection is."""

    def open(self) -> None:
        """Open the file; runs in the executor."""
        self.connection = connect(self._location, read_only=True)
        self._file = OpenFile(self._location.path)

    def close(self) -> None:
        """Close the file; runs in the executor."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query and return its answer."""
        return await run_in(self._executor, lambda: self._run(query))

    async def peek(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query outside of any transaction."""
        return await run_in(self._executor, lambda: self._peek(query))

    def _peek(self, query: Callable[[sqlite3.Connection], T]) -> T:
        assert self.connection is not None
        self._file.check()
        with translated(self._location.path):
            return query(self.connection)

    def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
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


async def run_in(executor: SerialExecutor, call: Callable[[], T]) -> T:
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
