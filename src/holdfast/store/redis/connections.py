"""Connections to one server for calls that are made often.

The client library's pool, retries and measuring around each command take several times as long
as the command; here a call takes the connection used last, sends, and reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hiredis import pack_command
from redis import exceptions
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection


class Connections:
    """So many connections at most, made by a pool of the library as its settings say."""

    def __init__(self, pool: ConnectionPool, most: int) -> None:
        self._pool = pool
        self._room = asyncio.Semaphore(most)
        self._idle: list[AbstractConnection] = []

    async def ask(self, words: Sequence[str | bytes | int | float]) -> Any:
        """Send one command and return the answer as it came."""
        async with self._room:
            line = self._idle.pop() if self._idle else self._new()
            try:
                await _ready(line)
                await line.send_packed_command(_packed(words), check_health=False)
                answer = await line.read_response()
            except exceptions.ResponseError:
                self._idle.append(line)
                raise
            except BaseException:
                await line.disconnect(nowait=True)
                raise
            self._idle.append(line)
            return answer

    def _new(self) -> AbstractConnection:
        made: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py is half typed
        return made

    async def close(self) -> None:
        """Let go of every connection."""
        idle, self._idle = self._idle, []
        for line in idle:
            await line.disconnect()


def _packed(words: Sequence[str | bytes | int | float]) -> bytes:
    return pack_command(tuple(words))  # type: ignore[arg-type, no-any-return]  # typed as if for one word


async def _ready(line: AbstractConnection) -> None:
    """Connect, again if the other side has hung up since the last call."""
    if line.is_connected:
        try:
            # Older releases of the library know the question by its longer name only.
            if not await getattr(line, "can_read", line.can_read_destructive)():
                return
        except (exceptions.ConnectionError, OSError):
            pass
        await line.disconnect(nowait=True)
    await line.connect()  # type: ignore[no-untyped-call]  # redis-py is half typed
