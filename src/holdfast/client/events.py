"""The event stream of a service; a broken stream resumes after the last event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from holdfast.client.errors import error_from
from holdfast.client.requests import query
from holdfast.client.transport import ConnectionLost, ServiceResponse, Transport
from holdfast.errors import StoreUnavailableError
from holdfast.model.status import EventInfo
from holdfast.runtime.backoff import GrowingDelay
from holdfast.runtime.randomness import Randomness


async def follow_events(
    transport: Transport, *, after: str | None, follow: bool
) -> AsyncIterator[EventInfo]:
    """Yield events; with ``follow`` a broken stream is opened again after the last event."""
    delays = GrowingDelay(Randomness(), longest=5.0)
    while True:
        try:
            async for event in _stream(transport, after, follow=follow):
                after = event.cursor
                delays.over()
                yield event
        except StoreUnavailableError:
            if not follow:
                raise
        if not follow:
            return
        await asyncio.sleep(delays.next())


async def _stream(
    transport: Transport, after: str | None, *, follow: bool
) -> AsyncIterator[EventInfo]:
    path = "/api/v1/events" + query({"after": after, "follow": follow})
    headers = {"accept": "text/event-stream"}
    async with transport.stream(path, headers) as (status, parts):
        if status != 200:
            raise error_from(ServiceResponse(status, {}, b"".join([part async for part in parts])))
        text = b""
        async for part in parts:
            *blocks, text = (text + part).split(b"\n\n")
            for block in blocks:
                if (event := _decode(block)) is not None:
                    yield event
    if follow:
        raise ConnectionLost("the stream ended", sent=True)


def _decode(block: bytes) -> EventInfo | None:
    lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
    if lines.get(b"event") not in (b"transition", b"progress"):
        return None
    return msgspec.json.decode(lines[b"data"], type=EventInfo)
