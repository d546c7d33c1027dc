"""Accepts connections within the limits, and a uvicorn server that gets them from here.

The limits apply before TLS: uvicorn itself sees a connection only after its handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import cast

import uvicorn

from holdfast.api.errors import ErrorResponse, RequestError, error_body
from holdfast.http.connection import ClientConnection, refusal
from holdfast.http.connections import READ_BYTES, ClientConnections, Place
from holdfast.http.responses import (
    Exchange,
    JsonResponse,
    Receive,
    Scope,
    Send,
    encoded,
    send_response,
)

SPARE_DESCRIPTORS = 128
"""Descriptors that the store, files and pipes get beside connections."""
SWEEP = 0.5
"""Seconds between two looks at the deadlines of all connections."""


class LimitedServer(uvicorn.Server):
    """A server whose connections have limits and deadlines."""

    def __init__(self, config: uvicorn.Config, connections: ClientConnections) -> None:
        super().__init__(config)
        self._connections = connections
        self._tasks: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept connections on these sockets."""
        await super().startup(sockets=[])
        if self.started:
            self._spawn(self._sweep())
            for listener in sockets or []:
                listener.setblocking(False)
                self._spawn(self._accept(listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and give those at work their time."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._connections.rejections.flush()
        await super().shutdown(sockets)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, (address, *_) = await loop.sock_accept(listener)
            except OSError as error:  # no descriptor is left
                self._connections.rejections.add("descriptors", str(error))
                self._connections.make_room()
                await asyncio.sleep(SWEEP / 10)
                continue
            place = self._connections.admit(address)
            if place is None:
                self._turn_away(accepted)
            else:
                self._welcome(accepted, place)
            await asyncio.sleep(0)  # a flood of connections must not hold up the others

    def _turn_away(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        with accepted, contextlib.suppress(OSError):
            if self.config.ssl is None:
                accepted.send(refusal(RequestError("UNAVAILABLE", "too many connections")))
                accepted.recv(READ_BYTES)  # unread bytes would discard the response

    def _welcome(self, accepted: socket.socket, place: Place) -> None:
        task = self._spawn(self._connect(accepted, place))
        place.evict = task.cancel
        place.wait()

    async def _connect(self, accepted: socket.socket, place: Place) -> None:
        """Make the connection; with TLS this includes the handshake."""
        tls = self.config.ssl
        timeout = self._connections.header_timeout
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Reader(self._connection(place), self._connections.buffer),
                accepted,
                ssl=tls,
                ssl_handshake_timeout=timeout if tls else None,
            )
        except (OSError, TimeoutError):  # TLS failed, or the client has left
            self._connections.rejections.add("TLS handshake", place.address)
            place.leave()
            accepted.close()
        except asyncio.CancelledError:
            place.leave()
            accepted.close()
            raise

    def _connection(self, place: Place) -> ClientConnection:
        return ClientConnection(
            self.config,
            self.server_state,
            self.lifespan.state,
            connections=self._connections,
            place=place,
        )

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        times = self._connections
        shortest = min(times.header_timeout, times.body_timeout, times.write_timeout)
        pause = min(SWEEP, shortest / 4)
        while True:
            await asyncio.sleep(pause)
            now = loop.time()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, ClientConnection)
                connection.expire(now)
            self._connections.rejections.flush()


class _Reader(asyncio.BufferedProtocol):
    """Reads into the one buffer of the server and passes on the bytes that arrived."""

    def __init__(self, connection: ClientConnection, buffer: memoryview) -> None:
        self._connection = connection
        self._buffer = buffer
        self.connection_lost = connection.connection_lost  # type: ignore[method-assign]
        self.pause_writing = connection.pause_writing  # type: ignore[method-assign]
        self.resume_writing = connection.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(cast("asyncio.Transport", transport))  # uvloop has its own

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.data_received(bytes(self._buffer[:nbytes]))


class ForwardedLimit:
    """Bounds the requests at a time of each address behind the named proxies."""

    def __init__(self, app: Callable[..., Awaitable[None]], connections: ClientConnections) -> None:
        self._app = app
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it when its address has too many under way."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._connections.request_of(scope["client"][0]) as has_room:
            if has_room:
                await self._app(scope, receive, send)
                return
        error = RequestError("UNAVAILABLE", "too many requests of this address at a time")
        status, body = error_body(error)
        response = JsonResponse(ErrorResponse(body), status, {"retry-after": "1"})
        await send_response(Exchange(scope, {}, "", receive, send), encoded(response))


def make_room_for(connections: int) -> int:
    """Return how many connections fit into the limit of descriptors, raised if need be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return connections
    return max(1, min(connections, soft - SPARE_DESCRIPTORS))
