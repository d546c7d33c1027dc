"""Responses of the service, and how they are sent."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any

import msgspec

Scope = MutableMapping[str, Any]  # as ASGI defines it
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MIN_COMPRESSED = 1400
"""Bytes; a smaller body fits into one packet anyway."""
COMPRESSED_IN_THREAD = 65_536
"""Bytes; compressing a larger body would block the event loop."""

SENT_AT_ONCE = 65_536
"""Bytes; a client that does not read holds no more than this of its response."""

_encoder = msgspec.json.Encoder()
_COMMON_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_JSON = (b"content-type", b"application/json")


class JsonResponse(msgspec.Struct, frozen=True):
    """A response with a JSON body."""

    body: object
    status: int = 200
    headers: Mapping[str, str] = {}
    size: int = 0
    """About how many bytes its payloads and results have: they are encoded beside the loop."""


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
    end: Callable[[], None]
    """Is called when the stream has ended."""
    media_type: str = "text/event-stream"


AnyResponse = JsonResponse | TextResponse | StreamResponse


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """One request and the way back to its client, as ASGI gives them."""

    scope: Scope
    headers: dict[bytes, bytes]
    request_id: str
    receive: Receive
    send: Send


class EncodedResponse(msgspec.Struct, frozen=True, gc=False):
    """A whole response as bytes."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def encoded(response: JsonResponse | TextResponse) -> EncodedResponse:
    """Return a response as bytes."""
    if isinstance(response, TextResponse):
        body, media_type = response.body, (b"content-type", response.media_type.encode())
    else:
        body, media_type = _encoder.encode(response.body), _JSON
    more = [(name.encode(), value.encode()) for name, value in response.headers.items()]
    return EncodedResponse(response.status, [media_type, *_COMMON_HEADERS, *more], body)


async def send_response(exchange: Exchange, response: EncodedResponse) -> int:
    """Send a whole response, compressed if it is large and the client accepts gzip."""
    body, headers = response.body, response.headers
    headers.append((b"x-request-id", exchange.request_id.encode()))
    if len(body) >= MIN_COMPRESSED:
        headers.append((b"vary", b"accept-encoding"))
        if b"gzip" in exchange.headers.get(b"accept-encoding", b""):
            body = (
                await asyncio.to_thread(gzip.compress, body, 5)
                if len(body) > COMPRESSED_IN_THREAD
                else gzip.compress(body, 5)
            )
            headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", b"%d" % len(body)))
    start = {"type": "http.response.start", "status": response.status, "headers": headers}
    await exchange.send(start)
    await _send_body(exchange.send, body)
    return response.status


async def _send_body(send: Send, body: bytes) -> None:
    """Send a body in parts: the rest waits until the client has read."""
    last = max(0, len(body) - 1) // SENT_AT_ONCE * SENT_AT_ONCE
    for at in range(0, last, SENT_AT_ONCE):
        part = body[at : at + SENT_AT_ONCE]
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": body[last:] if last else body})


async def send_stream(exchange: Exchange, stream: StreamResponse, stopping: asyncio.Event) -> int:
    """Send chunk by chunk; a client that reads slowly slows down only its own stream."""
    send = exchange.send
    headers = [
        (b"content-type", stream.media_type.encode()),
        (b"x-request-id", exchange.request_id.encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ]
    tasks: list[asyncio.Task[None]] = []
    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        create_task = asyncio.get_running_loop().create_task
        tasks = [
            create_task(_send_chunks(stream, send)),
            create_task(disconnected(exchange.receive)),
            create_task(stopped(stopping)),
            create_task(stream.key_ended()),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stream.end()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
    with contextlib.suppress(OSError):
        await send({"type": "http.response.body", "body": b""})
    return 200


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
