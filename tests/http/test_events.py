"""The event stream: live, filtered, resumable, cheap for thousands of subscribers."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.http.api_keys import Role
from holdfast.http.event_stream import EventTail
from holdfast.model.policy import ServiceLimits
from holdfast.store import EventPage, MemoryStore
from tests.http.site import API, running
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.site import Site

NOTHING = timedelta(0)


async def stream(
    site: Site, path: str, *, key: str | None = None, headers: dict[str, str] | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a stream, ``{"event": "open"}`` first."""
    async with aclosing(site.exchange("GET", f"{API}{path}", key=key, headers=headers)) as messages:
        async for message in messages:
            if message["type"] == "http.response.start":
                assert 200 == message["status"]
                continue
            for block in message["body"].decode().split("\n\n"):
                lines = dict(
                    line.split(": ", 1) for line in block.splitlines() if not line.startswith(":")
                )
                if block.startswith(": connected"):
                    yield {"event": "open"}
                elif lines:
                    yield {**json.loads(lines["data"]), "event": lines["event"]}


async def received(site: Site, path: str, count: int, **more: Any) -> list[dict[str, Any]]:
    """Return the first events of a stream."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(5), aclosing(stream(site, path, **more)) as events:
        async for event in events:
            if event["event"] != "open":
                found.append(event)
            if len(found) == count:
                break
    return found


async def test_events_arrive_as_they_happen(site: Site) -> None:
    async with asyncio.timeout(5), aclosing(stream(site, "/events")) as events:
        assert "open" == (await anext(events))["event"]
        waiting = asyncio.ensure_future(anext(events))
        await eventually(lambda: site.service.tail.subscribers)
        job_id = await site.submit("a", 1)
        first = await waiting
        second = await anext(events)
        (claimed,) = await site.claim()
        third = await anext(events)
        await site.post(
            f"{API}/jobs/{job_id}/progress",
            {"lease_token": claimed["lease_token"], "percent": 7, "message": "m"},
        )
        fourth = await anext(events)

    states = [e["transition"]["to_state"] for e in (first, second, third)]
    assert ["PENDING", "SCHEDULED", "RUNNING"] == states
    assert {job_id} == {e["job_id"] for e in (first, second, third, fourth)}
    assert ("progress", 7) == (fourth["event"], fourth["progress"]["percent"])


async def test_reconnecting_client_receives_every_event_once(site: Site) -> None:
    begin = (await site.store.events(None, 0, NOTHING)).cursor
    ids = [await site.submit("a", n) for n in range(10)]

    first_events = await received(site, f"/events?after={begin}", 7)
    last = {"last-event-id": first_events[-1]["cursor"]}
    rest = asyncio.create_task(received(site, "/events", 15, headers=last))
    await eventually(lambda: site.service.tail.subscribers)
    ids.append(await site.submit("a", 10))
    events = first_events + await rest

    assert [i for i in ids for _ in range(2)] == [e["job_id"] for e in events]
    cursors = [e["cursor"] for e in events]
    assert len(set(cursors)) == len(cursors)


async def test_stream_is_filtered_by_queue_type_job_and_tags(site: Site) -> None:
    begin = (await site.store.events(None, 0, NOTHING)).cursor
    a = await site.submit("a", 1, tags={"k": "1", "m": "x"})
    b = await site.submit("b", 1, queue="q", tags={"k": "2", "m": "x"})
    c = await site.submit("c", 1)

    async def jobs(query: str, count: int) -> set[str]:
        found = await received(site, f"/events?after={begin}&{query}", count)
        return {e["job_id"] for e in found}

    assert {b} == await jobs("queue=q", 2)
    assert {a, b} == await jobs("type=a&type=b", 4)
    assert {c} == await jobs(f"job={c}", 2)
    assert {b} == await jobs("tags[k]=2&tags[m]=x", 2)
    assert {a} == await jobs("tags[m]=x&type=a", 2)


@pytest.mark.req("A-20")
async def test_submitter_receives_events_of_its_own_jobs_only(site: Site) -> None:
    mine, other = await site.key(Role.SUBMITTER), await site.key(Role.SUBMITTER)
    begin = (await site.store.events(None, 0, NOTHING)).cursor
    await site.submit("theirs", 1, key=other)
    own = await site.submit("mine", 1, key=mine)

    events = await received(site, f"/events?after={begin}", 2, key=mine)

    assert {own} == {e["job_id"] for e in events}


@pytest.mark.parametrize("cursor", ["garbage", "-1", "'; --", "%00", "99999999999999999999999"])
async def test_wrong_cursor_is_refused_before_the_stream_begins(site: Site, cursor: str) -> None:
    reply = await site.get(f"{API}/events?after={cursor}")

    assert (400, "INVALID_REQUEST") == (reply.status, reply.code)


async def test_dropped_events_are_reported_as_a_gap() -> None:
    async with running(Holdfast(store=MemoryStore(events_kept=4))) as site:
        begin = (await site.store.events(None, 0, NOTHING)).cursor
        for n in range(5):
            await site.submit("a", n)

        events = await received(site, f"/events?after={begin}", 5)

    assert ["gap", *["transition"] * 4] == [e["event"] for e in events]


async def test_subscriber_behind_the_buffer_catches_up_from_the_store() -> None:
    store = MemoryStore()
    async with running(Holdfast(store=store)) as site:
        tail = EventTail(store, buffer=3)
        follower = tail.follow(None)
        slow = asyncio.ensure_future(anext(follower))
        await eventually(lambda: tail.subscribers)
        ids = [await site.submit("a", n) for n in range(10)]
        seen = [e.job_id for e in await slow or []]
        async with asyncio.timeout(5):
            while len(seen) < 20:
                seen += [e.job_id for e in await anext(follower) or []]
        await follower.aclose()
        await tail.close()

    assert [i for i in ids for _ in range(2)] == seen


class CountingStore(MemoryStore):
    """Counts how often the stream is read."""

    reads = 0

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        self.reads += 1
        return await super().events(after, limit, wait)


async def test_a_thousand_idle_subscribers_cost_no_threads_and_no_queries() -> None:
    store = CountingStore()
    capacity = ServiceLimits(streams_per_key=1000)
    async with (
        running(Holdfast(store=store), capacity=capacity) as site,
        AsyncExitStack() as stack,
    ):
        threads = threading.active_count()
        streams = [
            await stack.enter_async_context(aclosing(stream(site, "/events?type=a")))
            for _ in range(1000)
        ]
        for each in streams:
            assert "open" == (await anext(each))["event"]
        waiting = [asyncio.ensure_future(anext(each)) for each in streams]
        await eventually(lambda: site.service.tail.subscribers == len(streams))
        before = store.reads
        await site.submit("b", 1)
        job_id = await site.submit("a", 1)

        async with asyncio.timeout(20):
            events = await asyncio.gather(*waiting)

        assert {job_id} == {e["job_id"] for e in events}
        assert 1000 == site.service.tail.subscribers
        assert store.reads - before < 10
        assert threads == threading.active_count()
    assert 0 == site.service.tail.subscribers


async def test_stopping_service_ends_its_streams(site: Site) -> None:
    async with asyncio.timeout(5), aclosing(stream(site, "/events")) as events:
        await anext(events)
        site.service.stop()
        assert [] == [event async for event in events]


async def test_subscriber_that_disconnects_is_removed(site: Site) -> None:
    async with aclosing(stream(site, "/events")) as events:
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await eventually(lambda: site.service.tail.subscribers)
        await site.submit()
        await waiting
        assert 1 == site.service.tail.subscribers

    assert 0 == site.service.tail.subscribers
