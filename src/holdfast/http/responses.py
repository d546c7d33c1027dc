"""Responses of the service, and how they are sent."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any

import msgspec

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]  # as ASGI defines it
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MIN_COMPRESSED = 1400
"""Bytes; a smaller body fits into one packet anyway."""
COMPRESSED_IN_THREAD = 65_536
"""Bytes; compressing a larger body would block the event loop."""

_encoder = msgspec.json.Encoder()
_COMMON_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_JSON = (b"content-type", b"application/json")


class JsonResponse(msgspec.Struct, frozen=True):
    """A response with a JSON body."""

    body: object
    status: int = 200
    headers: Mapping[str, str] = {}


class TextResponse(msgspec.Struct, frozen=True):
    """A response with a body of another media type."""

    body: bytes
    media_type: str
    status: int = 200
    headers: Mapping[str, str] = {}


class StreamResponse(msgspec.Struct, frozen=True):
    """A response that continues until the client disconnects or the service stops."""

    chunks: AsyncIterator[bytes]
    key_ended: Callable[[], Coroutine[object, object, None]]
    """Waits until the key of the caller is no longer valid; then the stream ends."""
    media_type: str = "text/event-stream"


AnyResponse = JsonResponse | TextResponse | StreamResponse


async def send_response(
    send: Send, response: JsonResponse | TextResponse, request_id: str, accepts: bytes
) -> None:
    """Send a whole response, compressed if it is large and the client accepts gzip."""
    if isinstance(response, TextResponse):
        body, media_type = response.body, (b"content-type", response.media_type.encode())
    else:
        body, media_type = _encoder.encode(response.body), _JSON
    headers = [
        media_type,
        (b"x-request-id", request_id.encode()),
        *_COMMON_HEADERS,
        *[(name.encode(), value.encode()) for name, value in response.headers.items()],
    ]
    if len(body) >= MIN_COMPRESSED:
        headers.append((b"vary", b"accept-encoding"))
        if b"gzip" in accepts:
            body = (
                await asyncio.to_thread(gzip.compress, body, 5)
                if len(body) > COMPRESSED_IN_THREAD
                else gzip.compress(body, 5)
            )
            headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_stream(
    stream: StreamResponse, request_id: str, stopping: asyncio.Event, receive: Receive, send: Send
) -> None:
    """Send chunk by chunk; a client that reads slowly slows down only its own stream."""
    headers = [
        (b"content-type", stream.media_type.encode()),
        (b"x-request-id", request_id.encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    loop = asyncio.get_running_loop()
    tasks = [
        loop.create_task(_send_chunks(stream, send)),
        loop.create_task(disconnected(receive)),
        loop.create_task(stopped(stopping)),
        loop.create_task(stream.key_ended()),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    with contextlib.suppress(OSError):
        await send({"type": "http.response.body", "body": b""})


async def _send_chunks(stream: StreamResponse, send: Send) -> None:
    async with contextlib.aclosing(stream.chunks) as chunks:  # type: ignore[type-var]  # generators
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def disconnected(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def stopped(stopping: asyncio.Event) -> None:
    """Wait until the service stops."""
    await stopping.wait()
