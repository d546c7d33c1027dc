"""A connection that keeps an ear on the server, instead of turning to it for every answer.

psycopg tells the event loop with each statement which socket to watch, and afterwards to watch it
no longer. That is a third of what a short call costs its client.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import Buffer, PQGen, Transformer
from psycopg.errors import QueryCanceled
from psycopg.pq import Format, TransactionStatus
from psycopg.waiting import Ready, Wait

from holdfast.store.postgres.rows import Row

T = TypeVar("T")

CANCEL_WITHIN = 1.0
"""Seconds that whoever was cancelled waits at most for the server to hear of it."""


class Prepared(NamedTuple):
    """A statement that a connection knows."""

    name: bytes
    packers: tuple[tuple[str, Callable[..., Buffer | None]], ...]
    """The parameters in their order, and what brings each into PostgreSQL's form."""
    formats: list[Format]


class Line(AsyncConnection[Row]):
    """A connection of ours, and the statements that were prepared on it."""

    transformer: Transformer | None = None
    ear: socket.socket | None = None
    """The same socket under a number of its own: libpq closes its own whenever it likes.
    While it is there, the loop would have told us, had the server said something unasked."""
    _heard: asyncio.Future[int] | None = None
    era = 0
    """Which of the servers it leads to, counted by whoever opened it."""

    @classmethod
    async def connect(  # type: ignore[override]  # only pools of ours call it
        cls, conninfo: str = "", *, tried: Callable[[Exception | None], None], **how: Any
    ) -> Self:
        """Connect, and tell ``tried`` how it went: a pool would keep that to itself."""
        try:
            line = await super().connect(conninfo, **how)
        except (psycopg.Error, OSError) as error:
            tried(error)
            raise
        tried(None)
        return line

    @cached_property
    def prepared(self) -> dict[str, Prepared]:
        """Its statements by their name in ``queries/``."""
        return {}

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Let a generator of psycopg's come to its end; when cancelled, the server's work too."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        try:
            return await self._drive(gen)
        except asyncio.CancelledError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await self._call_off(gen)
            raise

    async def close(self) -> None:
        """Close the connection."""
        self._turn_away()
        await super().close()

    async def _drive(self, gen: PQGen[T], *, begun: bool = False) -> T:
        try:
            wanted = gen.send(Ready.NONE) if begun else next(gen)
            while True:
                wanted = gen.send(await self._until(wanted))
        except StopIteration as end:
            done: T = end.value
            return done

    async def _call_off(self, gen: PQGen[T]) -> None:
        """Stop what the server does for us; one that does not hear it loses the connection."""
        try:
            async with asyncio.timeout(CANCEL_WITHIN):
                await self.cancel_safe(timeout=CANCEL_WITHIN)
                await self._drive(gen, begun=True)
        except QueryCanceled:
            pass
        except (psycopg.Error, OSError):  # TimeoutError is one
            self._turn_away()
            self.pgconn.finish()

    async def _until(self, wanted: int) -> int:
        """Wait until there is something to read, or room to write."""
        loop = asyncio.get_running_loop()
        if self.ear is None:
            self.ear = socket.socket(fileno=os.dup(self.pgconn.socket))
            loop.add_reader(self.ear, self._hear, Ready.R)
        elif self.has_said(0):
            return Ready.R  # to read of it: uvloop tells only once, and that may have been before
        ear = self.ear
        heard: asyncio.Future[int] = loop.create_future()
        self._heard = heard
        if wanted & Wait.W:
            loop.add_writer(ear, self._hear, Ready.W)
        try:
            return await heard
        finally:
            self._heard = None
            if wanted & Wait.W:
                loop.remove_writer(ear)

    def has_said(self, events: int = select.POLLIN) -> bool:
        """Whether there is something of this kind from the server, or the socket has broken."""
        poll = select.poll()
        poll.register(self.pgconn.socket, events)
        return bool(poll.poll(0))

    def _hear(self, ready: int) -> None:
        if self._heard is None:
            self._turn_away()  # nobody asked: the server says something of its own, or goodbye
        elif not self._heard.done():
            self._heard.set_result(ready)

    def _turn_away(self) -> None:
        if self.ear is not None:
            asyncio.get_running_loop().remove_reader(self.ear)
            self.ear.close()
            self.ear = None
