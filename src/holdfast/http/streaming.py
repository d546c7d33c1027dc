"""Answers that go on: sent until the client leaves or the service stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from holdfast.http.endpoint import Stream

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def streamed(
    stream: Stream, request_id: str, stopping: asyncio.Event, receive: Receive, send: Send
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
    pump = loop.create_task(_pump(stream, send))
    ends = [loop.create_task(_left(receive)), loop.create_task(_wait(stopping)), pump]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in ends:
            task.cancel()
        await asyncio.wait(ends)
    with contextlib.suppress(OSError):
        await send({"type": "http.response.body", "body": b""})


async def _pump(stream: Stream, send: Send) -> None:
    async with contextlib.aclosing(stream.chunks) as chunks:  # type: ignore[type-var]  # generators
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
