"""Connections to one server for frequent calls.

The client library's pool, retries and measuring around each command take several times as long
as the command. Here a call takes the connection used last, sends, and reads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from hiredis import pack_command
from redis import exceptions
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection

LARGE = 16_384
"""Bytes from which a word of a command is sent without copying it first; it must come last, or
before other large ones."""


class Connections:
    """Up to ``limit`` connections, made by a pool of the library with its settings."""

    def __init__(self, pool: ConnectionPool, limit: int) -> None:
        self._pool = pool
        self._free = asyncio.Semaphore(limit)
        self._idle: list[AbstractConnection] = []

    async def send(self, words: Sequence[str | bytes | int | float]) -> Any:
        """Send one command and return the answer as received."""
        async with self._free:
            connection = self._idle.pop() if self._idle else self._new()
            try:
                await self._write(connection, _packed(words))
                answer = await connection.read_response()
            except exceptions.ResponseError:
                self._idle.append(connection)
                raise
            except BaseException as error:
                await _drop(connection)
                if isinstance(error, exceptions.ConnectionError | OSError | RuntimeError):
                    await self._drop_idle()
                raise
            self._idle.append(connection)
            return answer

    async def _write(self, connection: AbstractConnection, data: bytes | list[bytes]) -> None:
        """Send a command; over a new line when the old one was closed before it could be sent."""
        await _connect(connection)
        try:
            await connection.send_packed_command(data, check_health=False)
        except RuntimeError:  # uvloop's error for a closed line: nothing was sent
            await _drop(connection)
            await _connect(connection)
            await connection.send_packed_command(data, check_health=False)

    async def _drop_idle(self) -> None:
        """Close the other lines: what broke one has most likely broken them too."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await _drop(connection)

    def _new(self) -> AbstractConnection:
        made: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py is half typed
        return made

    async def close(self) -> None:
        """Close every idle connection."""
        await self._drop_idle()


async def _drop(connection: AbstractConnection) -> None:
    """Close a line, which may be broken in any way."""
    with contextlib.suppress(Exception):
        await connection.disconnect(nowait=True)


def _packed(words: Sequence[str | bytes | int | float]) -> bytes | list[bytes]:
    last = words[-1]
    if isinstance(last, bytes) and len(last) >= LARGE:
        return _pieces(words)
    return pack_command(tuple(words))  # type: ignore[arg-type, no-any-return]  # typed as if for one word


def _pieces(words: Sequence[str | bytes | int | float]) -> list[bytes]:
    """Return the parts of a command; to pack them into one takes longer than to send them."""
    pieces = [b"*%d\r\n" % len(words)]
    for word in words:
        text = word if isinstance(word, bytes) else str(word).encode()
        pieces += (b"$%d\r\n" % len(text), text, b"\r\n")
    return pieces


async def _connect(connection: AbstractConnection) -> None:
    """Connect, and reconnect if the server has closed the connection since the last call."""
    if connection.is_connected:
        try:
            # Older releases of the library have only the longer name.
            if not await getattr(connection, "can_read", connection.can_read_destructive)():
                return
        except (exceptions.ConnectionError, OSError, RuntimeError):
            pass
        await _drop(connection)
    await connection.connect()  # type: ignore[no-untyped-call]  # redis-py is half typed
