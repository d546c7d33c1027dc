"""Every request: errors with the same body, limits on size and time, compression."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailableError
from holdfast.http.application import ENDPOINTS
from holdfast.http.requests import RequestLimits
from holdfast.model.policy import Limits
from holdfast.operations.quarantine import report_failing, set_aside
from holdfast.operations.store_safety import report_safe, report_unsafe
from holdfast.store import MemoryStore
from tests.http.site import API, running
from tests.worker.rig import EventLog

if TYPE_CHECKING:
    from tests.http.site import Site

JOBS = f"{API}/jobs"


@pytest.mark.req("A-3", "A-10")
async def test_error_lists_every_fault_with_its_field(site: Site) -> None:
    body = {
        "type": "a b",
        "queue": "a/b",
        "priority": "URGENT",
        "delay": "soon",
        "timeout": -1,
        "max_attempts": 101,
        "backoff": {"strategy": "NONE", "huh": 1},
        "tags": {"holdfast:owner": "me"},
        "depends_on": ["missing"],
        "callback_url": "ftp://x",
        "job_id": "mine",
        "unknown": 1,
    }

    reply = await site.post(JOBS, body, headers={"x-request-id": "my-request-1"})

    assert (400, "INVALID_REQUEST") == (reply.status, reply.code)
    expected = {"type", "payload", "queue", "priority", "delay", "timeout", "max_attempts"}
    expected |= {"backoff.huh", "backoff.strategy", "tags", "depends_on", "callback_url"}
    expected |= {"job_id", "unknown"}
    assert expected == set(reply.fields)
    assert "my-request-1" == reply.headers["x-request-id"] == reply.json["error"]["request_id"]
    assert {"code", "message", "details", "request_id"} == set(reply.json["error"])
    assert 0 == (await site.get(JOBS)).json["total_count"]


@pytest.mark.parametrize("given", ["short", "a b c d e f g", "x" * 65, "a\nb-12345678"])
async def test_malformed_request_id_is_replaced(site: Site, given: str) -> None:
    reply = await site.get(JOBS, headers={"x-request-id": given})

    assert given != reply.headers["x-request-id"]
    assert 32 == len(reply.headers["x-request-id"])


async def test_every_request_without_an_id_gets_its_own(site: Site) -> None:
    replies = [await site.get(JOBS) for _ in range(5)]

    assert 5 == len({reply.headers["x-request-id"] for reply in replies})


@pytest.mark.req("A-10")
async def test_unknown_paths_and_methods_have_the_same_error_body(site: Site) -> None:
    nowhere = await site.get("/api/v1/nothing")
    slash = await site.get(f"{JOBS}/")
    method = await site.call("PATCH", JOBS)

    assert (404, "NOT_FOUND") == (nowhere.status, nowhere.code)
    assert 404 == slash.status
    assert (405, "METHOD_NOT_ALLOWED", "GET, POST") == (
        method.status,
        method.code,
        method.headers["allow"],
    )


@pytest.mark.req("M-12", "A-10")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nope",
        b"[]",
        b"3",
        b"null",
        b'{"type": "a", "payload": NaN}',
        b'{"type": "a", "payload": Infinity}',
        b'{"type": "a", "payload": 1e999}',
        b'{"type": "a", "payload": "\\u0000"}',
        b'{"type": "a", "payload": "\\ud800"}',
        b'{"type": "a", "payload": {"\\ud800": 1}}',
        b'{"type": "a", "payload": "\xff"}',
        b'{"type": "a\\u0000", "payload": 1}',
        b'{"type": "\\ud800", "payload": 1}',
        b'{"type": "a", "payload": ' + b"9" * 5000 + b"}",
        b'{"type": "a", "payload": 1, "delay": ' + b"9" * 5000 + b"}",
        b'{"type": "a", "payload": 1, "max_attempts": 1e308}',
        b'{"type": "a", "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type": "a", "payload": 1, "tags": ' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"}",
        b'{"type": "a", "payload": 1, "tags": {"\\u0000": "x"}}',
        b'{"type": "a", "payload": 1, "queue": "a\\u0000b"}',
        b'{"type": "a", "payload": 1, "idempotency_key": "\\u0000"}',
        b'{"type": ["a"], "payload": {}, "depends_on": {"a": 1}}',
        b'{"type": "a", "payload": "%%%", "payload_encoding": "base64"}',
        b'{"type": "a", "payload": 1, "queue": [null]}',
        b'{"type": "a", "payload": 1, "queue": {}, "priority": {}, "ref": {}, "limit_key": []}',
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
async def test_malformed_body_is_refused_and_stores_nothing(site: Site, body: bytes) -> None:
    one = await site.post(JOBS, raw=body)
    batch = await site.post(f"{JOBS}/batch", raw=b'{"jobs": [' + (body or b"1") + b"]}")
    bare = await site.post(f"{JOBS}/batch", raw=body)

    assert [(400, "INVALID_REQUEST")] * 3 == [(r.status, r.code) for r in (one, batch, bare)]
    assert one.json["error"]["details"]
    assert 0 == (await site.get(JOBS)).json["total_count"]


@pytest.mark.parametrize("path", ["jobs/search", "jobs/cancel", "workers/claim", "jobs/x/fail"])
@pytest.mark.parametrize("body", [b"{", b"[1]", b"[" * 100_000, b'{"\\ud800": 1}', b'{"x": 1}'])
async def test_malformed_fields_are_refused(site: Site, path: str, body: bytes) -> None:
    reply = await site.post(f"{API}/{path}", raw=body)

    assert (400, "INVALID_REQUEST") == (reply.status, reply.code)


async def test_body_above_the_limit_is_refused_before_it_is_read(site: Site) -> None:
    size = 17 * 1024 * 1024
    declared = await site.post(JOBS, raw=b"{}", headers={"content-length": str(size)})
    streamed = await site.post(JOBS, raw=[b" " * 1024 * 1024] * 17)
    huge = await site.post(JOBS, raw=b"{}", headers={"content-length": "9" * 5000})

    assert [(413, "TOO_LARGE")] * 3 == [(r.status, r.code) for r in (declared, streamed, huge)]


async def test_payload_above_its_own_limit_is_refused(site: Site) -> None:
    body = json.dumps({"type": "a", "payload": "x" * (2 * 1024 * 1024)}).encode()

    reply = await site.post(JOBS, raw=body)

    assert (400, {"payload": "TOO_LARGE"}) == (reply.status, reply.fields)


async def test_body_that_arrives_too_slowly_is_refused() -> None:
    async with running(limits=RequestLimits(arrival=0.01)) as site:

        async def never() -> None:
            await asyncio.Event().wait()

        messages = []

        async def send(message: dict[str, object]) -> None:
            messages.append(message)

        from tests.http.site import scope

        async with asyncio.timeout(5):
            await site.asgi(scope("POST", JOBS, None, None), never, send)

        assert 408 == messages[0]["status"]


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": ""},
        {"content-encoding": "gzip"},
    ],
)
async def test_body_must_be_plain_json(site: Site, headers: dict[str, str]) -> None:
    """A web page can send the first three content types without a CORS preflight."""
    reply = await site.post(JOBS, {"type": "a", "payload": 1}, headers=headers)

    assert (415, "UNSUPPORTED_MEDIA_TYPE") == (reply.status, reply.code)
    assert 0 == (await site.get(JOBS)).json["total_count"]


async def test_large_responses_are_compressed_for_clients_that_accept_gzip(site: Site) -> None:
    for n in range(10):
        await site.submit("a", n)

    plain = await site.get(JOBS)
    compressed = await site.get(JOBS, headers={"accept-encoding": "br, gzip"})
    small = await site.get("/health/live", headers={"accept-encoding": "gzip"})

    assert "content-encoding" not in plain.headers
    assert "gzip" == compressed.headers["content-encoding"]
    assert plain.json == compressed.json
    assert int(compressed.headers["content-length"]) < len(plain.body) / 3
    assert "content-encoding" not in small.headers


@pytest.mark.req("A-4", "A-10")
async def test_quota_error_says_when_to_retry() -> None:
    app = Holdfast(store=MemoryStore(), limits=Limits(queue_depth=1))
    async with running(app) as site:
        await site.submit()
        reply = await site.post(JOBS, {"type": "a", "payload": 1})

    assert (429, "QUOTA_EXCEEDED", "1") == (reply.status, reply.code, reply.headers["retry-after"])
    error = reply.json["error"]
    assert ("queue default depth", 1, 1) == (error["limit"], error["current"], error["maximum"])
    assert "PT1S" == error["retry_after"]


class FailingStore(MemoryStore):
    """A store that fails with the given error."""

    error: Exception | None = None

    async def find(self, search: object) -> object:  # type: ignore[override]
        assert self.error is not None
        raise self.error

    async def claim(self, want: object) -> object:  # type: ignore[override]
        raise StoreUnavailableError("gone")


@pytest.mark.req("A-10", "S-9")
async def test_unavailable_store_is_503_and_a_bug_is_500_without_details() -> None:
    store, observer = FailingStore(), EventLog()
    async with running(Holdfast(store=store), observer=observer) as site:
        await site.submit()
        store.error = StoreUnavailableError("no route to host")
        unavailable = await site.get(JOBS)
        store.error = KeyError("secret inside")
        bug = await site.get(JOBS)
        ready = await site.get("/health/ready")
        live = await site.get("/health/live")

    assert (503, "UNAVAILABLE", "1") == (
        unavailable.status,
        unavailable.code,
        unavailable.headers["retry-after"],
    )
    assert (500, "INTERNAL_ERROR") == (bug.status, bug.code)
    assert b"secret" not in bug.body
    (failed,) = observer.all("http.failed")
    assert bug.json["error"]["request_id"] == failed["request_id"]
    assert "secret inside" in str(failed["error"])
    assert (503, "unavailable") == (ready.status, ready.json["status"])
    assert (200, "ok") == (live.status, live.json["status"])


async def test_ready_when_the_store_can_be_reached_and_claimed_from(site: Site) -> None:
    reply = await site.get("/health/ready")

    checks = {"store": "ok", "claim": "ok", "maintenance": "ok"}
    assert (200, checks) == (reply.status, reply.json["checks"])
    assert [] == (await site.get(f"{API}/queues")).json["queues"]


async def test_stopping_service_is_not_ready_and_ends_long_waits(site: Site) -> None:
    job_id = await site.submit(delay=60)
    waiting = asyncio.create_task(site.get(f"{JOBS}/{job_id}/wait?timeout=60"))
    polling = asyncio.create_task(site.post(f"{API}/workers/claim", {"worker_id": "w", "wait": 30}))
    await asyncio.sleep(0)

    site.service.stop()

    async with asyncio.timeout(5):
        waited, polled = await waiting, await polling
    assert ("DELAYED", []) == (waited.json["state"], polled.json["jobs"])
    assert 503 == (await site.get("/health/ready")).status


async def test_only_listed_origins_may_call_from_a_web_page() -> None:
    headers = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    async with running() as default, running(cors=["https://app.example"]) as with_cors:
        refused = await default.call("OPTIONS", JOBS, headers=headers)
        allowed = await with_cors.call("OPTIONS", JOBS, headers=headers)

    assert 405 == refused.status
    assert "access-control-allow-origin" not in refused.headers
    assert "https://app.example" == allowed.headers["access-control-allow-origin"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]:80"])
async def test_without_keys_foreign_host_names_are_refused(site: Site, host: str) -> None:
    """Otherwise a web page could call the service under a host name that it controls."""
    reply = await site.get(JOBS, headers={"host": host})

    assert (421, "MISDIRECTED") == (reply.status, reply.code)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080"])
async def test_host_names_of_this_machine_are_accepted(site: Site, host: str) -> None:
    assert 200 == (await site.get(JOBS, headers={"host": host})).status


@pytest.mark.parametrize(
    "text",
    [
        "'; DROP TABLE job; --",
        '" OR 1=1 --',
        "{}; return redis.call('FLUSHALL')",
        "%s %d $1 ?1 :x",
        "../../etc/passwd",
        "<script>alert(1)</script>",
        "\r\nSet-Cookie: a=b",
    ],
)
async def test_injection_finds_nothing_and_changes_nothing(site: Site, text: str) -> None:
    await site.submit("a", 1, tags={"name": text, text: "v"}, correlation_id=text)

    by_tag = await site.post(f"{JOBS}/search", {"tags": {"name": text, text: "v"}})
    by_id = await site.post(f"{JOBS}/search", {"correlation_id": text})
    by_type = await site.post(f"{JOBS}/search", {"types": [text], "queues": [text]})
    order = await site.post(f"{JOBS}/search", {"order": text})
    cursor = await site.post(f"{JOBS}/search", {"cursor": text})
    queue = await site.post(JOBS, {"type": "a", "payload": 1, "queue": text})
    type_ = await site.post(JOBS, {"type": text, "payload": 1})

    assert (1, 1, 0) == tuple(r.json["total_count"] for r in (by_tag, by_id, by_type))
    assert [400] * 4 == [r.status for r in (order, cursor, queue, type_)]
    assert all("set-cookie" not in r.headers for r in (order, cursor, queue, type_))
    assert 1 == (await site.get(JOBS)).json["total_count"]


@pytest.mark.req("R-2")
async def test_failing_maintenance_service_is_reported_by_readiness_and_metrics(site: Site) -> None:
    await report_failing(site.store, "reaper", ValueError("bad row"))
    await set_aside(site.store, "job-1", "damaged")

    ready, metrics = await site.get("/health/ready"), await site.get("/metrics")

    assert (200, "degraded") == (ready.status, ready.json["status"])
    assert "failing: reaper" == ready.json["checks"]["maintenance"]
    assert b'holdfast_maintenance_failing{service="reaper"} 1' in metrics.body
    assert b"holdfast_quarantined_items 1" in metrics.body
    await report_failing(site.store, "reaper", None)
    assert "ok" == (await site.get("/health/ready")).json["status"]


async def test_store_that_became_unsafe_is_reported_by_readiness_and_metrics(site: Site) -> None:
    await report_unsafe(site.store, "eviction", "maxmemory-policy allkeys-lru may evict jobs.")

    ready, metrics = await site.get("/health/ready"), await site.get("/metrics")

    assert (200, "degraded") == (ready.status, ready.json["status"])
    assert "unsafe: eviction" == ready.json["checks"]["store"]
    assert b'holdfast_store_unsafe{check="eviction"} 1' in metrics.body
    await report_safe(site.store, "eviction")
    assert "ok" == (await site.get("/health/ready")).json["status"]


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
]
OWN = [
    {},
    {"origin": "http://localhost"},
    {"origin": "http://localhost", "sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
    {"origin": "https://app.example", "sec-fetch-site": "cross-site"},
]


@pytest.mark.req("A-20")
@pytest.mark.parametrize("headers", FOREIGN)
async def test_without_keys_pages_of_other_sites_change_nothing(
    site: Site, headers: dict[str, str]
) -> None:
    """A POST without a body needs no preflight: only its headers show where it comes from."""
    changing = [e for e in ENDPOINTS if e.method != "GET"]

    replies = [
        await site.call(e.method, re.sub(r"\{\w+\}", "x", e.path), headers=headers)
        for e in changing
    ]

    assert {(403, "FORBIDDEN")} == {(reply.status, reply.code) for reply in replies}
    assert "--cors" in replies[0].json["error"]["message"]


@pytest.mark.parametrize("headers", OWN)
async def test_without_keys_own_pages_and_programs_may_change_things(
    headers: dict[str, str],
) -> None:
    async with running(cors=["https://app.example"]) as site:
        reply = await site.post(f"{API}/queues/q/pause", headers=headers)

    assert 200 == reply.status


@pytest.mark.req("A-10")
async def test_too_many_tags_in_a_search_are_refused(site: Site) -> None:
    tags = {f"t{n}": "x" for n in range(65)}
    query = "&".join(f"tags[{name}]=x" for name in tags)

    replies = [
        await site.post(f"{JOBS}/search", {"tags": tags}),
        await site.get(f"{JOBS}?{query}"),
        await site.get(f"{API}/events?follow=false&{query}"),
    ]

    assert [(400, {"tags": "TOO_MANY"})] * 3 == [(r.status, r.fields) for r in replies]
