"""Shares of the service: what one key uses at a time does not keep others from theirs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast
from holdfast.http.capacity import Capacity
from holdfast.model.policy import ServiceLimits
from holdfast.store import MemoryStore, Search
from tests.http.site import API, running, scope
from tests.waiting import eventually

if TYPE_CHECKING:
    from holdfast.store import Page
    from tests.http.site import Site

JOBS = f"{API}/jobs"


class GatedStore(MemoryStore):
    """Searches for type ``slow`` wait at a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.at_gate = 0
        self.most_at_gate = 0

    async def find(self, search: Search) -> Page:
        if search.types == ("slow",):
            self.at_gate += 1
            self.most_at_gate = max(self.most_at_gate, self.at_gate)
            await self.gate.wait()
            self.at_gate -= 1
        return await super().find(search)


async def test_the_flood_of_one_key_waits_and_others_are_served() -> None:
    store = GatedStore()
    capacity = ServiceLimits(requests_per_key=3, waiting_per_key=10)
    async with running(Holdfast(store=store), capacity=capacity) as site:
        await site.submit("slow")
        loud, quiet = await site.key("observer"), await site.key("observer")
        flood = [asyncio.ensure_future(site.get(f"{JOBS}?types=slow", key=loud)) for _ in range(14)]
        await eventually(lambda: store.at_gate == 3 and any(each.done() for each in flood))

        other = await site.get(JOBS, key=quiet)
        refused = next(each.result() for each in flood if each.done())
        store.gate.set()
        replies = await asyncio.gather(*flood)

    assert 200 == other.status
    assert (429, "QUOTA_EXCEEDED") == (refused.status, refused.code)
    assert "requests that wait for their turn of this key" == refused.json["error"]["limit"]
    assert "1" == refused.headers["retry-after"]
    assert [200] * 13 + [429] == sorted(reply.status for reply in replies)
    assert 3 == store.most_at_gate
    assert not site.service.capacity.bytes


async def test_streams_of_one_key_are_limited_and_those_of_others_open() -> None:
    async with running(capacity=ServiceLimits(streams_per_key=2)) as site:
        loud, quiet = await site.key("observer"), await site.key("observer")
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await _open_stream(site, stack, loud)

            refused = await site.get(f"{API}/events", key=loud)
            await _open_stream(site, stack, quiet)

        again = await site.get(f"{API}/events?follow=false", key=loud)

    assert (429, "event streams of this key") == (refused.status, refused.json["error"]["limit"])
    assert "1" == refused.headers["retry-after"]
    assert 200 == again.status


async def _open_stream(site: Site, stack: AsyncExitStack, key: str) -> None:
    messages = await stack.enter_async_context(
        aclosing(site.exchange("GET", f"{API}/events", key=key))
    )
    assert 200 == (await anext(messages))["status"]


async def test_long_polls_are_limited_and_take_no_turn_from_other_requests() -> None:
    capacity = ServiceLimits(long_polls_per_key=2, requests_per_key=1)
    async with running(capacity=capacity) as site:
        job_id = await site.submit("a")
        key, other = await site.key("admin"), await site.key("admin")
        wait = f"{JOBS}/{job_id}/wait"
        polls = [asyncio.ensure_future(site.get(wait, key=key)) for _ in range(2)]
        use = site.service.capacity.uses
        await eventually(lambda: any(each.long_polls == 2 for each in use.values()))

        refused = await site.get(wait, key=key)
        listed = await site.get(JOBS, key=key)
        claim = await site.post(
            f"{API}/workers/claim", {"worker_id": "w", "queues": ["none"], "wait": 5}, key=key
        )
        await site.post(f"{JOBS}/{job_id}/cancel", {}, key=other)
        ended = await asyncio.gather(*polls)

    assert 429 == refused.status == claim.status
    assert "requests that wait for a job or for work of this key" == refused.json["error"]["limit"]
    assert 200 == listed.status
    assert ["CANCELLED"] * 2 == [reply.json["state"] for reply in ended]


async def test_half_sent_bodies_of_one_key_are_reserved_before_they_are_read() -> None:
    capacity = ServiceLimits(bytes_per_key=2500, bytes=4000)
    async with running(capacity=capacity) as site:
        loud, quiet = await site.key("submitter"), await site.key("submitter")
        half_sent = [HalfSent(site, loud, 1000) for _ in range(2)]
        await eventually(lambda: site.service.capacity.bytes == 2000)

        declared = await site.post(JOBS, {"type": "a"}, key=loud, headers=_length(600))
        chunked = await site.call("POST", JOBS, raw=[b" " * 300, b" " * 300], key=loud)
        small = await site.post(JOBS, {"type": "a", "payload": 1}, key=quiet, headers=_length(30))
        in_all = await site.post(JOBS, {"type": "a"}, key=quiet, headers=_length(2100))
        for each in half_sent:
            await each.disconnect()
        after = await site.post(JOBS, {"type": "a", "payload": 1}, key=loud, headers=_length(600))

    assert 429 == declared.status == chunked.status
    assert "bytes in flight of this key" == declared.json["error"]["limit"]
    assert 201 == small.status == after.status
    assert (503, "UNAVAILABLE", "1") == (in_all.status, in_all.code, in_all.headers["retry-after"])
    assert not site.service.capacity.bytes


def _length(size: int) -> dict[str, str]:
    return {"content-length": str(size)}


class HalfSent:
    """A request whose body never arrives as a whole."""

    def __init__(self, site: Site, key: str, length: int) -> None:
        self._gone = asyncio.Event()
        self._parts = [{"type": "http.request", "body": b"{", "more_body": True}]
        request = scope("POST", JOBS, key, _length(length))
        self._task = asyncio.ensure_future(site.asgi(request, self._receive, self._send))

    async def disconnect(self) -> None:
        self._gone.set()
        await self._task

    async def _receive(self) -> dict[str, Any]:
        if self._parts:
            return self._parts.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        pass


async def test_responses_that_a_client_does_not_read_count_as_its_bytes() -> None:
    async with running(capacity=ServiceLimits(bytes_per_key=3000)) as site:
        key = await site.key("admin")
        job_id = await site.submit("a", "x" * 2000, key=key)
        unread = asyncio.Event()

        async def send(message: dict[str, Any]) -> None:
            await unread.wait()

        request = scope("GET", f"{JOBS}/{job_id}/payload", key, None)
        slow = asyncio.ensure_future(site.asgi(request, asyncio.Event().wait, send))
        await eventually(lambda: site.service.capacity.bytes)

        refused = await site.get(f"{JOBS}/{job_id}/payload", key=key)
        unread.set()
        await slow
        again = await site.get(f"{JOBS}/{job_id}/payload", key=key)

    assert (429, "bytes in flight of this key") == (refused.status, refused.json["error"]["limit"])
    assert 200 == again.status


async def test_a_waiting_request_that_is_cancelled_leaves_its_place() -> None:
    capacity = Capacity(ServiceLimits(requests_per_key=1))
    use = capacity.of("a")
    await use.take_turn()
    given_up = asyncio.ensure_future(use.take_turn())
    next_one = asyncio.ensure_future(use.take_turn())
    await asyncio.sleep(0)  # both tasks begin to wait

    given_up.cancel()
    await asyncio.wait([given_up])
    use.end_turn()
    await next_one
    use.end_turn()
    use.close()

    assert not capacity.uses
