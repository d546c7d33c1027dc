"""The route that streams events of jobs; a client can resume after the last event it received."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import cast

import msgspec

from holdfast.api.jobs import visible_event
from holdfast.errors import Fault, ValidationError
from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import Field, flag, text, text_list
from holdfast.http.permissions import Permission
from holdfast.http.responses import StreamResponse
from holdfast.http.routes.jobs import checked_filter
from holdfast.store import JobEvent, Store
from holdfast.store.tenants import TenantStore

TAGS_CACHED = 1000
"""How many jobs one subscriber remembers as matching its tags or not."""
PAGE = 500
KEEP_ALIVE = b": nothing happened\n\n"
GAP = b"event: gap\ndata: {}\n\n"


class EventFilter:
    """The events that one subscriber wants."""

    def __init__(self, store: Store, query: Mapping[str, object]) -> None:
        self._store = store
        self._queues = frozenset(cast("list[str]", query.get("queue", ())))
        self._types = frozenset(cast("list[str]", query.get("type", ())))
        self._jobs = frozenset(cast("list[str]", query.get("job", ())))
        self._tags = cast("dict[str, str]", query.get("tags", {}))
        self._matched: OrderedDict[str, bool] = OrderedDict()

    async def matching(self, events: Sequence[JobEvent]) -> list[JobEvent]:
        """Return the events that match; a job's tags never change, so they are read once."""
        found = [e for e in events if self._matches(e)]
        if not self._tags or not found:
            return found
        unknown = list({e.job_id for e in found if e.job_id not in self._matched})
        for job_id, job in zip(unknown, await self._store.get(unknown), strict=True):
            tags = job.tags if job else {}
            self._matched[job_id] = all(tags.get(k) == v for k, v in self._tags.items())
        matching = [e for e in found if self._matched[e.job_id]]
        while len(self._matched) > TAGS_CACHED:
            self._matched.popitem(last=False)
        return matching

    def _matches(self, event: JobEvent) -> bool:
        return (
            (not self._queues or event.queue in self._queues)
            and (not self._types or event.type in self._types)
            and (not self._jobs or event.job_id in self._jobs)
        )


async def events(call: Call) -> StreamResponse:
    """Open a stream."""
    checked_filter(call.query)
    after = _after(call)
    if after is not None:
        await call.operations.store.events(after, 1, timedelta(0))
    chunks = _live(call, after) if call.query.get("follow", True) else _stored(call, after)
    key_ended = partial(call.service.key_watch.ended, call.caller)
    return StreamResponse(chunks, key_ended, call.use.open_stream())


def _after(call: Call) -> str | None:
    header = call.headers.get(b"last-event-id", b"").decode("latin-1")
    cursor = str(call.query.get("after", header))
    if not cursor:
        return None
    if not cursor.isascii() or "\x00" in cursor:
        raise ValidationError([Fault("after", "INVALID", "must be the id of an event")])
    return cursor


async def _live(call: Call, after: str | None) -> AsyncIterator[bytes]:
    store = cast("TenantStore", call.operations.store)
    filter_ = EventFilter(store, call.query)
    yield b": connected\n\n"
    async for page in call.service.tail.follow(after):
        if page is None:
            yield GAP
            continue
        found = await filter_.matching(await store.visible_events(page))
        if found:
            yield b"".join(_encode(event, traces=call.caller.traces) for event in found)
        elif not page:
            yield KEEP_ALIVE


async def _stored(call: Call, after: str | None) -> AsyncIterator[bytes]:
    """Yield the stored events and end."""
    filter_ = EventFilter(call.operations.store, call.query)
    while True:
        page = await call.operations.store.events(after, PAGE, timedelta(0))
        if page.gap:
            yield GAP
        for event in await filter_.matching(page.events):
            yield _encode(event, traces=call.caller.traces)
        after = page.cursor
        if not page.events:
            return


def _encode(event: JobEvent, *, traces: bool) -> bytes:
    data = msgspec.json.encode(visible_event(event.info(), traces=traces))
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        event.cursor.encode(),
        event.kind.value.encode(),
        data,
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/events",
        name="streamEvents",
        summary="Stream events of jobs",
        description="Server-sent events: `transition` and `progress` with a JobEvent as data, `gap`"
        " when events were dropped before they could be sent. Without an id the stream begins"
        " now. A client that reconnects with Last-Event-ID receives everything that is still"
        " stored (about 10,000 events). All filters must match.",
        handler=events,
        permission=Permission.READ,
        query=(
            text_list("queue", maximum=100),
            text_list("type", maximum=100),
            text_list("job", maximum=100),
            Field(
                name="tags",
                schema={"type": "object", "additionalProperties": {"type": "string"}},
                deep=True,
                description="Written as tags[name]=value.",
            ),
            flag(
                "follow",
                description="false: send the stored events and end; without `after`, all of them.",
            ),
            text(
                "after",
                maximum=128,
                description="Like Last-Event-ID, for clients that cannot set headers.",
            ),
        ),
        headers=(text("Last-Event-ID", maximum=128, description="The last event received."),),
        media_type="text/event-stream",
        timeout=None,
    ),
)
