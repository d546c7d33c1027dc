"""Ending calls that hang: one timer for all of them, because nearly none ever does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from holdfast.store.postgres.rows import Row


class Alarm:
    """Cuts every connection whose call takes longer than so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[AsyncConnection[Row], float] = {}
        """The connections in use and when each is to be cut, the first one first."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self, connection: AsyncConnection[Row]) -> None:
        """Watch over a call."""
        loop = asyncio.get_running_loop()
        self._due[connection] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look, loop)

    def stop(self, connection: AsyncConnection[Row]) -> None:
        """Let go of a call that has ended; the timer may find nothing to do."""
        self._due.pop(connection, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = max(loop.time(), self._timer.when()) if self._timer else loop.time()
        for connection in [each for each, due in self._due.items() if due <= now]:
            del self._due[connection]
            cut(connection)
        next_due = next(iter(self._due.values()), None)
        self._timer = None if next_due is None else loop.call_at(next_due, self._look, loop)


def cut(connection: AsyncConnection[Row]) -> None:
    """End a call: whoever waits for the server sees the connection close."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)
