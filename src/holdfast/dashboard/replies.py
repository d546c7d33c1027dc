"""What the dashboard sends: pages, redirections, files and streams."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Sequence

import msgspec

from holdfast.dashboard.security import HEADERS
from holdfast.http.responses import Receive, Scope, Send, disconnected, stopped

MIN_COMPRESSED = 1000
"""Bytes; a smaller body fits into one packet anyway."""


class WebReply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole response."""

    body: bytes = b""
    media_type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    compressed: bytes = b""
    """The body as gzip, if that was made in advance."""
    cached: bool = False
    """Whether a browser may keep it for ever: its name has a hash of its content."""


class WebStream(msgspec.Struct, frozen=True):
    """A stream of events."""

    chunks: AsyncIterator[bytes]


def redirection(to: str, *headers: tuple[str, str]) -> WebReply:
    """Return a response that leads to another page, with GET."""
    return WebReply(status=303, headers=(("location", to), *headers))


async def send_reply(scope: Scope, send: Send, reply: WebReply) -> None:
    """Send a whole response, compressed if the browser accepts that."""
    body = reply.body
    kept = b"public, max-age=31536000, immutable" if reply.cached else b"no-store"
    headers = [
        (b"content-type", reply.media_type.encode()),
        (b"cache-control", kept),
        *HEADERS,
        *((name.encode(), value.encode("latin-1", "replace")) for name, value in reply.headers),
    ]
    if len(body) >= MIN_COMPRESSED:
        headers.append((b"vary", b"accept-encoding"))
        if b"gzip" in dict(scope["headers"]).get(b"accept-encoding", b""):
            body = reply.compressed or await _compressed(body)
            headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    shown = b"" if scope["method"] == "HEAD" else body
    await send({"type": "http.response.body", "body": shown})


async def _compressed(body: bytes) -> bytes:
    if len(body) > 262_144:
        return await asyncio.to_thread(gzip.compress, body, 5)
    return gzip.compress(body, 5)


async def send_events(
    receive: Receive, send: Send, stream: WebStream, stopping: asyncio.Event
) -> None:
    """Send chunk by chunk until the browser leaves or the service stops."""
    headers = [
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
        *HEADERS,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    create = asyncio.get_running_loop().create_task
    tasks = [
        create(_send_chunks(stream.chunks, send)),
        create(disconnected(receive)),
        create(stopped(stopping)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    with contextlib.suppress(OSError):
        await send({"type": "http.response.body", "body": b""})


async def _send_chunks(chunks: AsyncIterator[bytes], send: Send) -> None:
    async with contextlib.aclosing(chunks) as each:  # type: ignore[type-var]  # generators
        async for chunk in each:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
