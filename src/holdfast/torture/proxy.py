"""A line to the store's server that can be cut, before or after a request was sent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Self, cast


class Proxy:
    """Passes bytes on between clients and one server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._lines: set[_Near] = set()
        self._doom: list[bool] = []
        self.cut_before = 0
        self.cut_after = 0

    @property
    def port(self) -> int:
        """Where clients find it, on the loopback address."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Near(self), "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for line in list(self._lines):
            line.cut()

    def cut(self, *, after: bool) -> None:
        """Cut the next line that carries a request: before it is sent, or before the reply."""
        self._doom.append(after)

    def heal(self) -> None:
        """Cut nothing any more."""
        self._doom.clear()

    def joined(self, line: _Near) -> None:
        """Hear of a new line."""
        self._lines.add(line)

    def left(self, line: _Near) -> None:
        """Hear of the end of a line."""
        self._lines.discard(line)

    def fate(self) -> bool | None:
        """What becomes of a request: None, or whether it is cut after it was sent."""
        return self._doom.pop() if self._doom else None

    def connect(self, line: _Near) -> asyncio.Task[object]:
        """Open the other half of a line."""
        loop = asyncio.get_running_loop()
        return loop.create_task(loop.create_connection(lambda: _Far(line), *self._target))


class _Near(asyncio.Protocol):
    """The client's half."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.transport: asyncio.Transport | None = None
        self.far: asyncio.Transport | None = None
        self.doomed = False
        self._is_cut = False
        self._early: list[bytes] = []
        self._task: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._proxy.joined(self)
        self._task = self._proxy.connect(self)
        self._task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[object]) -> None:
        if task.cancelled() or task.exception() is not None:
            self.cut()

    def connected(self, far: asyncio.Transport) -> None:
        self.far = far
        for data in self._early:
            far.write(data)
        if self.transport is None or self.transport.is_closing():
            far.abort()

    def data_received(self, data: bytes) -> None:
        if self.far is None:
            self._early.append(data)
            return
        fate = self._proxy.fate()
        if fate is False:
            self._proxy.cut_before += 1
            self.cut()
            return
        self.doomed = self.doomed or fate is True
        self.far.write(data)

    def reply(self, data: bytes) -> None:
        if self.doomed:
            self._proxy.cut_after += 1
            self.cut()
        elif self.transport is not None:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._proxy.left(self)
        if self.doomed and not self._is_cut:
            self._proxy.cut(after=True)  # it ended by itself: the next line is cut instead
        if self.far is not None:
            self.far.close()

    def cut(self) -> None:
        """Reset both halves, so that nobody sees an orderly end."""
        self._is_cut = True
        for half in (self.transport, self.far):
            if half is not None and not half.is_closing():
                line = half.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    linger = struct.pack("ii", 1, 0)
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                half.abort()


class _Far(asyncio.Protocol):
    """The server's half."""

    def __init__(self, near: _Near) -> None:
        self._near = near

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._near.connected(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._near.reply(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._near.transport is not None:
            self._near.transport.close()
