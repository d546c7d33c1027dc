"""A TCP line that fails on command, for tests of what a client does then."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Self


class Proxy:
    """Passes bytes on between clients and one server, until told to misbehave."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent = False
        self._cut_after: bytes | None = None
        self.cuts = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._target[0], 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        await asyncio.gather(*self._tasks)

    def lead_to(self, port: int) -> None:
        """Lead new lines to another server of the same host; those that are open stay."""
        self._target = (self._target[0], port)

    def silence(self) -> None:
        """Swallow everything from now on, both ways, and keep the lines open."""
        self._silent = True

    def heal(self) -> None:
        """Behave again, for new lines and old."""
        self._silent = False
        self._cut_after = None

    def cut_after(self, request: bytes) -> None:
        """Let the server answer a request that holds these bytes, then cut the line."""
        self._cut_after = request

    def reset(self) -> None:
        """Cut every line that is open."""
        for line in list(self._lines):
            _reset(line)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._lines.add(writer)
        try:
            await self._pass_on(reader, writer)
        finally:
            self._lines.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        doomed = asyncio.Event()
        up = asyncio.create_task(self._up(reader, to_server, doomed))
        down = asyncio.create_task(self._down(from_server, writer, doomed))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for half in (up, down):
                half.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            to_server.close()

    async def _up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._cut_after is not None and self._cut_after in data:
                    doomed.set()
                if not self._silent:
                    writer.write(data)
                    await writer.drain()

    async def _down(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if doomed.is_set():
                    self.cuts += 1
                    _reset(writer)
                    return
                if not self._silent:
                    writer.write(data)
                    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close at once, so that the other side sees a reset rather than an orderly end."""
    line = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
