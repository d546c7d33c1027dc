"""Reads on a connection of their own: the writer never blocks them, nor they the writer."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from holdfast.store.sqlite.connection import connect, translated
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import WriterThread, emit

T = TypeVar("T")


class Reader:
    """Runs reads in a lane; each sees one state of the file."""

    def __init__(self, location: Location, lane: WriterThread) -> None:
        self._location = location
        self._lane = lane
        self.connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open the file; runs in the lane."""
        self.connection = connect(self._location, read_only=True)

    def close(self) -> None:
        """Close the file; runs in the lane."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query and return its answer."""
        return await run_in(self._lane, lambda: self._run(query))

    async def glance(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query outside of any transaction."""
        return await run_in(self._lane, lambda: self._glance(query))

    def _glance(self, query: Callable[[sqlite3.Connection], T]) -> T:
        assert self.connection is not None
        with translated(self._location.path):
            return query(self.connection)

    def _run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        connection = self.connection
        assert connection is not None
        with translated(self._location.path):
            connection.execute("BEGIN")
            try:
                return query(connection)
            finally:
                if connection.in_transaction:  # SQLite itself ends one that the disk failed
                    connection.execute("COMMIT")


async def run_in(lane: WriterThread, call: Callable[[], T]) -> T:
    """Run a call in a lane and return what it returns, or raise what it raises."""
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
        emit(loop, lambda: None if future.done() else settle())

    lane.post(run)
    return await future
