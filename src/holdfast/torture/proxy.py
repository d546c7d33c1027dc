"""A TCP proxy that cuts connections to the store's server, before or after a request is sent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Self, cast


class Proxy:
    """Passes bytes between clients and one server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._connections: set[_ClientSide] = set()
        self._pending_cuts: list[bool] = []
        self.cut_before = 0
        self.cut_after = 0
        self.reset = 0

    @property
    def port(self) -> int:
        """The port on the loopback address that clients connect to."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _ClientSide(self), "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections):
            connection.cut()

    def cut(self, *, after: bool) -> None:
        """Cut the next connection with a request, before it is sent or before the reply."""
        self._pending_cuts.append(after)

    def reset_idle(self) -> bool:
        """Reset every line that waits for no reply; return whether there was one."""
        idle = [line for line in self._connections if line.is_idle]
        for line in idle:
            line.cut()
        self.reset += bool(idle)
        return bool(idle)

    def stop_cutting(self) -> None:
        """Cut no further connection."""
        self._pending_cuts.clear()

    def opened(self, connection: _ClientSide) -> None:
        """Add a connection."""
        self._connections.add(connection)

    def closed(self, connection: _ClientSide) -> None:
        """Remove a connection."""
        self._connections.discard(connection)

    def next_cut(self) -> bool | None:
        """Return whether to cut a request after it is sent; None for no cut."""
        return self._pending_cuts.pop() if self._pending_cuts else None

    def connect(self, client: _ClientSide) -> asyncio.Task[object]:
        """Open the connection to the server."""
        loop = asyncio.get_running_loop()
        return loop.create_task(loop.create_connection(lambda: _ServerSide(client), *self._target))


class _ClientSide(asyncio.Protocol):
    """The side of a connection towards the client."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.transport: asyncio.Transport | None = None
        self.server: asyncio.Transport | None = None
        self.cut_reply = False
        self.is_idle = False
        """Whether the last request has been answered."""
        self._is_cut = False
        self._buffered: list[bytes] = []
        self._task: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._proxy.opened(self)
        self._task = self._proxy.connect(self)
        self._task.add_done_callback(self._connect_done)

    def _connect_done(self, task: asyncio.Task[object]) -> None:
        if task.cancelled() or task.exception() is not None:
            self.cut()

    def connected(self, server: asyncio.Transport) -> None:
        self.server = server
        for data in self._buffered:
            server.write(data)
        if self.transport is None or self.transport.is_closing():
            server.abort()

    def data_received(self, data: bytes) -> None:
        if self.server is None:
            self._buffered.append(data)
            return
        self.is_idle = False
        cut_after = self._proxy.next_cut()
        if cut_after is False:
            self._proxy.cut_before += 1
            self.cut()
            return
        self.cut_reply = self.cut_reply or cut_after is True
        self.server.write(data)

    def reply(self, data: bytes) -> None:
        if self.cut_reply:
            self._proxy.cut_after += 1
            self.cut()
        elif self.transport is not None:
            self.is_idle = True
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._proxy.closed(self)
        if self.cut_reply and not self._is_cut:
            self._proxy.cut(after=True)  # it closed by itself: cut the next one instead
        if self.server is not None:
            self.server.close()

    def cut(self) -> None:
        """Reset both sides, so that neither sees an orderly close."""
        self._is_cut = True
        for side in (self.transport, self.server):
            if side is not None and not side.is_closing():
                sock = side.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    linger = struct.pack("ii", 1, 0)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                side.abort()


class _ServerSide(asyncio.Protocol):
    """The side of a connection towards the server."""

    def __init__(self, client: _ClientSide) -> None:
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client.connected(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._client.reply(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._client.transport is not None:
            self._client.transport.close()
