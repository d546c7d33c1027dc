"""The event stream: what happens to jobs, as it happens, resumable."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import cast

import msgspec

from holdfast.api.jobs import EventBody
from holdfast.errors import Fault, ValidationError
from holdfast.http.endpoint import Call, Endpoint, Stream
from holdfast.http.fields import Field, flag, text, words
from holdfast.http.permissions import Permission
from holdfast.http.routes.jobs import plain_filter
from holdfast.store import JobEvent, Store
from holdfast.store.tenants import TenantStore

REMEMBERED = 1000
PAGE = 500
HEARTBEAT = b": nothing happened\n\n"
GAP = b"event: gap\ndata: {}\n\n"


class Filter:
    """What one subscriber wants to hear."""

    def __init__(self, store: Store, query: Mapping[str, object]) -> None:
        self._store = store
        self._queues = frozenset(cast("list[str]", query.get("queue", ())))
        self._types = frozenset(cast("list[str]", query.get("type", ())))
        self._jobs = frozenset(cast("list[str]", query.get("job", ())))
        self._tags = cast("dict[str, str]", query.get("tags", {}))
        self._matched: OrderedDict[str, bool] = OrderedDict()

    async def wanted(self, events: Sequence[JobEvent]) -> list[JobEvent]:
        """Return those that match; the tags of a job never change, so they are asked for once."""
        found = [e for e in events if self._matches(e)]
        if not self._tags or not found:
            return found
        unknown = list({e.job_id for e in found if e.job_id not in self._matched})
        for job_id, job in zip(unknown, await self._store.get(unknown), strict=True):
            tags = job.tags if job else {}
            self._matched[job_id] = all(tags.get(k) == v for k, v in self._tags.items())
        wanted = [e for e in found if self._matched[e.job_id]]
        while len(self._matched) > REMEMBERED:
            self._matched.popitem(last=False)
        return wanted

    def _matches(self, event: JobEvent) -> bool:
        return (
            (not self._queues or event.queue in self._queues)
            and (not self._types or event.type in self._types)
            and (not self._jobs or event.job_id in self._jobs)
        )


async def events(call: Call) -> Stream:
    """Open a stream."""
    plain_filter(call.query)
    after = _after(call)
    if after is not None:
        await call.operations.store.events(after, 1, timedelta(0))
    if call.query.get("follow", True):
        return Stream(_stream(call, after))
    return Stream(_kept(call, after))


def _after(call: Call) -> str | None:
    given = call.headers.get(b"last-event-id", b"").decode("latin-1")
    asked = call.query.get("after", given)
    if not asked:
        return None
    if not str(asked).isascii() or "\x00" in str(asked):
        raise ValidationError([Fault("after", "INVALID", "must be the id of an event")])
    return str(asked)


async def _stream(call: Call, after: str | None) -> AsyncIterator[bytes]:
    store = cast("TenantStore", call.operations.store)
    chosen = Filter(store, call.query)
    yield b": connected\n\n"
    async for page in call.service.tail.follow(after):
        if page is None:
            yield GAP
            continue
        found = await chosen.wanted(await store.visible_events(page))
        if found:
            yield b"".join(_written(event, traces=call.caller.traces) for event in found)
        elif not page:
            yield HEARTBEAT


async def _kept(call: Call, after: str | None) -> AsyncIterator[bytes]:
    """What is kept so far, and no more."""
    chosen = Filter(call.operations.store, call.query)
    while True:
        page = await call.operations.store.events(after, PAGE, timedelta(0))
        if page.gap:
            yield GAP
        for event in await chosen.wanted(page.events):
            yield _written(event, traces=call.caller.traces)
        after = page.cursor
        if not page.events:
            return


def _written(event: JobEvent, *, traces: bool) -> bytes:
    data = msgspec.json.encode(EventBody.of(event, traces=traces))
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
        summary="Hear what happens to jobs, as it happens",
        help="Server-sent events: `transition` and `progress` with a EventBody as data, `gap`"
        " when events were dropped before they could be sent. Without an id the stream begins"
        " now; a client that reconnects sends Last-Event-ID and misses nothing that is still"
        " kept (about 10,000 events). All filters must match.",
        handler=events,
        permission=Permission.READ,
        query=(
            words("queue", most=100),
            words("type", most=100),
            words("job", most=100),
            Field(
                name="tags",
                schema={"type": "object", "additionalProperties": {"type": "string"}},
                deep=True,
                help="As tags[name]=value.",
            ),
            flag(
                "follow", help="false: end after what is kept; then without `after` from the start."
            ),
            text("after", most=128, help="As Last-Event-ID, for clients that cannot set headers."),
        ),
        header=(text("Last-Event-ID", most=128, help="The last event that was heard."),),
        media_type="text/event-stream",
        patience=None,
    ),
)
