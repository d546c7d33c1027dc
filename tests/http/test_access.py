"""Permissions: every route with every role and without a key."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast.errors import NotFoundError, ValidationError
from holdfast.http.api_keys import ApiKeys, KeyTerms, Role, list_keys
from holdfast.http.application import ENDPOINTS
from holdfast.http.key_changes import create_key, revoke_key
from holdfast.http.permissions import GRANTS, Permission
from holdfast.model.reserved import API_KEYS
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import MemoryStore, RecordWrite
from holdfast.store.browsing import every_record
from tests.architecture import tree
from tests.http.site import API
from tests.waiting import eventually

if TYPE_CHECKING:
    from holdfast.http.endpoint import Endpoint
    from tests.http.site import Site

ROLES = "submitter worker observer operator admin"
OPEN = {"getLiveness", "getReadiness", "getDocument", "getDocs"}
MATRIX = {
    "submitJob": "yes no no no yes",
    "submitBatch": "yes no no no yes",
    "listJobs": "yes no yes yes yes",
    "countJobs": "no no yes yes yes",
    "searchJobs": "yes no yes yes yes",
    "getJob": "yes no yes yes yes",
    "getResult": "yes no yes yes yes",
    "waitForJob": "yes no yes yes yes",
    "getFailure": "yes no yes yes yes",
    "explainJob": "yes no yes yes yes",
    "getLogs": "yes no yes yes yes",
    "streamEvents": "yes no yes yes yes",
    "cancelJob": "yes no no yes yes",
    "getPayload": "yes no no yes yes",
    "setQueueAgeing": "no no no yes yes",
    "releaseJob": "yes no no yes yes",
    "cancelJobs": "no no no yes yes",
    "retryJobs": "no no no yes yes",
    "deleteJobs": "no no no yes yes",
    "retryJob": "no no no yes yes",
    "deleteJob": "no no no yes yes",
    "updateJob": "no no no yes yes",
    "pauseQueue": "no no no yes yes",
    "resumeQueue": "no no no yes yes",
    "listFailures": "no no yes yes yes",
    "searchFailures": "no no yes yes yes",
    "listFailureGroups": "no no yes yes yes",
    "getSeries": "no no yes yes yes",
    "getStats": "no no yes yes yes",
    "listQueues": "no no yes yes yes",
    "listWorkers": "no no yes yes yes",
    "getMetrics": "no no yes yes yes",
    "listAudit": "no no no no yes",
    "listWebhooks": "no no yes yes yes",
    "getWebhook": "no no yes yes yes",
    "addWebhook": "no no no no yes",
    "removeWebhook": "no no no no yes",
    "switchWebhook": "no no no no yes",
    "rotateWebhookSecret": "no no no no yes",
    "listDeliveries": "no no yes yes yes",
    "resendDelivery": "no no no yes yes",
    "listSchedules": "no no yes yes yes",
    "createSchedule": "no no no no yes",
    "getSchedule": "no no yes yes yes",
    "changeSchedule": "no no no no yes",
    "deleteSchedule": "no no no no yes",
    "pauseSchedule": "no no no yes yes",
    "resumeSchedule": "no no no yes yes",
    "runSchedule": "no no no yes yes",
    "startOperation": "no no no yes yes",
    "previewOperation": "no no yes yes yes",
    "listOperations": "no no yes yes yes",
    "getOperation": "no no yes yes yes",
    "cancelOperation": "no no no yes yes",
    "getJobGraph": "yes no yes yes yes",
    "listLimits": "no no yes yes yes",
    "setLimit": "no no no yes yes",
    "liftLimit": "no no no yes yes",
    "drainWorker": "no no no yes yes",
    "undrainWorker": "no no no yes yes",
    "scaleQueue": "no no yes yes yes",
    "claimJobs": "no yes no no yes",
    "renewLeases": "no yes no no yes",
    "renewLease": "no yes no no yes",
    "reportProgress": "no yes no no yes",
    "saveCheckpoint": "no yes no no yes",
    "getDependencyResults": "no yes no no yes",
    "logLine": "no yes no no yes",
    "completeJob": "no yes no no yes",
    "failJob": "no yes no no yes",
    "giveBackJob": "no yes no no yes",
    "spawnJob": "no yes no no yes",
}


async def status_of(site: Site, endpoint: Endpoint, key: str | None) -> int:
    """Return the status of a route; a stream is closed as soon as it has begun."""
    path = re.sub(r"\{\w+\}", "x", endpoint.path)
    async with asyncio.timeout(5):
        async for message in site.exchange(endpoint.method, path, b"", key=key):
            return int(message["status"])
    raise AssertionError("no response")


def test_matrix_names_every_route_and_role() -> None:
    assert ROLES.split() == [role.value for role in Role]
    assert {e.name for e in ENDPOINTS} - OPEN == set(MATRIX)
    assert {e.name for e in ENDPOINTS if e.permission is None} == OPEN


@pytest.mark.req("A-20")
async def test_every_role_may_call_its_routes_and_no_others(site: Site) -> None:
    keys = {role: await site.key(role) for role in Role}
    allowed = {}
    for endpoint in ENDPOINTS:
        if endpoint.name in OPEN:
            continue
        statuses = [await status_of(site, endpoint, keys[role]) for role in Role]
        assert 401 not in statuses, endpoint.name
        allowed[endpoint.name] = " ".join("no" if status == 403 else "yes" for status in statuses)

    assert MATRIX == allowed


@pytest.mark.req("A-20")
@pytest.mark.parametrize(
    "key", [None, "", "x", "hf_000000000000_" + "0" * 64, "hf_\u00fc", "Bearer"]
)
async def test_every_route_refuses_calls_without_a_valid_key(site: Site, key: str | None) -> None:
    await site.key(Role.ADMIN)

    statuses = {e.name: await status_of(site, e, key) for e in ENDPOINTS}

    assert {name for name, status in statuses.items() if status != 401} == OPEN


@pytest.mark.req("A-20", "A-10")
async def test_errors_say_which_permission_is_missing(site: Site) -> None:
    observer = await site.key(Role.OBSERVER)

    without_key = await site.get(f"{API}/jobs")
    forbidden = await site.post(f"{API}/jobs", {"type": "a", "payload": 1}, key=observer)
    header = await site.get(f"{API}/jobs", headers={"x-api-key": observer})

    assert (401, "UNAUTHORIZED", "Bearer") == (
        without_key.status,
        without_key.code,
        without_key.headers["www-authenticate"],
    )
    assert (403, "FORBIDDEN") == (forbidden.status, forbidden.code)
    assert "observer may not submit" in forbidden.json["error"]["message"]
    assert 200 == header.status


@pytest.mark.req("A-20")
async def test_revoked_or_expired_key_is_refused(site: Site) -> None:
    secret = await site.key(Role.OBSERVER)
    expired = await site.key(Role.OBSERVER, expires_at=site.store.now())
    later = await site.key(Role.OBSERVER, expires_at=site.store.now() + timedelta(hours=1))
    before = await site.get(f"{API}/jobs", key=secret)

    await revoke_key(site.store, secret.split("_")[1])
    site.forget_keys()

    assert 200 == before.status
    assert [401, 401, 200] == [
        (await site.get(f"{API}/jobs", key=key)).status for key in (secret, expired, later)
    ]


async def test_only_a_digest_of_the_key_is_stored() -> None:
    store = MemoryStore()

    key, secret = await create_key(store, KeyTerms(name="n", role=Role.ADMIN), Randomness())

    stored = b"".join(record.data for record in await store.browse("key"))
    assert secret.encode() not in stored
    assert secret.rpartition("_")[2].encode() not in stored
    assert [key] == await list_keys(store)
    assert 256 == len(secret.rpartition("_")[2]) * 4


async def test_revocation_takes_effect_within_a_second() -> None:
    store, clock = MemoryStore(), ManualClock()
    key, secret = await create_key(store, KeyTerms(name="n", role=Role.ADMIN), Randomness())
    keys = ApiKeys(store, clock)
    await keys.refresh()
    await revoke_key(store, key.id)

    clock.advance(0.9)
    await keys.refresh()
    assert keys.find(secret) is not None
    clock.advance(0.1)
    await keys.refresh()

    assert keys.find(secret) is None
    assert not keys.is_empty


@pytest.mark.req("A-20")
@pytest.mark.parametrize("end", ["revoked", "expired", "first key"])
async def test_streams_and_long_polls_end_with_their_key_within_a_second(
    site: Site, end: str
) -> None:
    key = None
    if end != "first key":
        expires = site.store.now() + timedelta(seconds=0.5) if end == "expired" else None
        key = await site.key(Role.ADMIN, expires_at=expires)
    job_id = (await site.post(f"{API}/jobs", LATER, key=key)).json["job_id"]
    calls = [
        asyncio.create_task(site.get(f"{API}/events", key=key)),
        asyncio.create_task(site.get(f"{API}/jobs/{job_id}/wait?timeout=60", key=key)),
        asyncio.create_task(
            site.post(f"{API}/workers/claim", {"worker_id": "w", "wait": 30}, key=key)
        ),
    ]
    await eventually(lambda: site.service.tail.subscribers == 1)
    loop = asyncio.get_running_loop()
    begun = loop.time()

    if key is not None and end == "revoked":
        await revoke_key(site.store, key.split("_")[1])
    elif key is None:
        await create_key(site.store, KeyTerms(name="n", role=Role.ADMIN), Randomness())
    async with asyncio.timeout(5):
        replies = await asyncio.gather(*calls)

    assert [200, 401, 401] == [reply.status for reply in replies]
    assert loop.time() - begun < (1.5 if end == "expired" else 1.0)


LATER = {"type": "a", "payload": 1, "delay": 600}


async def test_right_id_with_a_wrong_secret_finds_no_key() -> None:
    store = MemoryStore()
    _, secret = await create_key(store, KeyTerms(name="n", role=Role.ADMIN), Randomness())
    keys = ApiKeys(store, ManualClock())
    await keys.refresh()

    for position in (len(secret) - 1, len(secret) - 64):
        wrong = (
            secret[:position] + ("0" if secret[position] != "0" else "1") + secret[position + 1 :]
        )
        assert keys.find(wrong) is None
    assert keys.find(secret) is not None


async def test_invalid_settings_of_a_key_are_all_reported() -> None:
    terms = KeyTerms(name="", role=Role.ADMIN, namespace="a/b", rate=0, live_jobs=-1)

    with pytest.raises(ValidationError) as refused:
        await create_key(MemoryStore(), terms, Randomness())
    with pytest.raises(NotFoundError):
        await revoke_key(MemoryStore(), "x")

    assert ["name", "namespace", "rate", "live_jobs"] == [f.field for f in refused.value.faults]


@pytest.mark.req("A-20")
async def test_submitter_sees_and_cancels_only_its_own_jobs(site: Site) -> None:
    mine, other, admin = [await site.key(r) for r in (Role.SUBMITTER, Role.SUBMITTER, Role.ADMIN)]
    own = await site.submit("a", 1, tags={"k": "v"}, key=mine)
    theirs = await site.submit("a", 2, key=other)
    plain = await site.submit("a", 3, key=admin)

    listed = await site.get(f"{API}/jobs", key=mine)
    by_tag = await site.post(f"{API}/jobs/search", {"tags": {"k": "v"}}, key=mine)
    forged = await site.post(f"{API}/jobs/search", {"tags": {"holdfast:owner": "x"}}, key=mine)
    everything = await site.get(f"{API}/jobs", key=admin)
    cancelled = await site.post(f"{API}/jobs/{own}/cancel", key=mine)

    assert [own] == [job["job_id"] for job in listed.json["jobs"]]
    assert (1, 1) == (listed.json["total_count"], by_tag.json["total_count"])
    assert {"k": "v"} == listed.json["jobs"][0]["tags"]
    assert {"tags": "RESERVED"} == forged.fields
    assert 3 == everything.json["total_count"]
    assert "CANCELLED" == cancelled.json["status"]
    for foreign in (theirs, plain):
        for method, path in (
            ("GET", ""),
            ("GET", "/result"),
            ("GET", "/wait?timeout=0.1"),
            ("GET", "/failure"),
            ("GET", "/explain"),
            ("GET", "/logs"),
            ("POST", "/cancel"),
            ("POST", "/release"),
        ):
            reply = await site.call(method, f"{API}/jobs/{foreign}{path}", key=mine)
            assert (404, "NOT_FOUND") == (reply.status, reply.code), path
        unknown = await site.get(f"{API}/jobs/missing", key=mine)
        hidden = await site.get(f"{API}/jobs/{foreign}", key=mine)
        assert (
            unknown.json["error"]["message"].replace("missing", foreign)
            == (hidden.json["error"]["message"])
        )
        depends = {"type": "a", "payload": 1, "depends_on": [foreign]}
        assert {"depends_on": "NOT_FOUND"} == (
            await site.post(f"{API}/jobs", depends, key=mine)
        ).fields


@pytest.mark.req("A-20")
async def test_submitter_does_not_see_details_of_handlers(site: Site) -> None:
    submitter, worker = await site.key(Role.SUBMITTER), await site.key(Role.WORKER)
    job_id = await site.submit("a", 1, max_attempts=1, key=submitter)
    (claimed,) = await site.claim(key=worker)
    failure = {"message": "no", "stack_trace": "secret line", "context": {"x": "y"}, "host": "h"}
    await site.post(
        f"{API}/jobs/{job_id}/fail", {"lease_token": claimed["lease_token"], **failure}, key=worker
    )

    for path in ("?include_history=true", "/failure", "/result"):
        reply = await site.get(f"{API}/jobs/{job_id}{path}", key=submitter)
        assert 200 == reply.status
        assert b"secret line" not in reply.body
        assert b'"no"' in reply.body


@pytest.mark.req("A-4", "A-20")
async def test_rate_of_one_key_does_not_limit_another(site: Site) -> None:
    slow = await site.key(Role.OBSERVER, rate=2)
    free = await site.key(Role.OBSERVER)

    statuses = [(await site.get(f"{API}/jobs", key=slow)).status for _ in range(4)]
    refused = await site.get(f"{API}/jobs", key=slow)

    assert [200, 200, 429] == statuses[:3]
    assert ("QUOTA_EXCEEDED", "requests per second", 2) == (
        refused.code,
        refused.json["error"]["limit"],
        refused.json["error"]["maximum"],
    )
    assert int(refused.headers["retry-after"]) >= 1
    assert 200 == (await site.get(f"{API}/jobs", key=free)).status


@pytest.mark.req("A-4", "A-20", "M-2")
async def test_duplicates_need_no_room_among_the_unfinished_jobs_of_a_key(site: Site) -> None:
    small = await site.key(Role.SUBMITTER, live_jobs=2)
    jobs = [{"type": "a", "payload": 1, "idempotency_key": f"k{n}"} for n in range(3)]

    first = [await site.post(f"{API}/jobs", jobs[0], key=small) for _ in range(5)]
    second = await site.post(f"{API}/jobs/batch", {"jobs": jobs[:2]}, key=small)
    again = [await site.post(f"{API}/jobs", job, key=small) for job in jobs]
    batches = [await site.post(f"{API}/jobs/batch", {"jobs": jobs[:n]}, key=small) for n in (2, 3)]

    assert [201, 200, 200, 200, 200] == [reply.status for reply in first]
    assert ["DUPLICATE", "ACCEPTED"] == [r["status"] for r in second.json["results"]]
    assert [200, 200, 429] == [reply.status for reply in again]
    assert [200, 429] == [reply.status for reply in batches]


@pytest.mark.req("A-4", "A-20")
async def test_unfinished_jobs_are_limited_per_key(site: Site) -> None:
    small = await site.key(Role.SUBMITTER, live_jobs=3)
    other = await site.key(Role.SUBMITTER)
    job = {"type": "a", "payload": 1}

    batch = await site.post(f"{API}/jobs/batch", {"jobs": [job] * 4}, key=small)
    three = [await site.submit(key=small) for _ in range(3)]
    full = await site.post(f"{API}/jobs", job, key=small)
    await site.submit(key=other)
    await site.post(f"{API}/jobs/{three[0]}/cancel", key=small)
    await asyncio.sleep(0)
    site.service.key_limits._uses.clear()  # counts are trusted for a while

    assert (429, 429) == (batch.status, full.status)
    assert "unfinished jobs of this key" == full.json["error"]["limit"]
    assert 201 == (await site.post(f"{API}/jobs", job, key=small)).status


def test_every_route_that_changes_something_is_audited() -> None:
    changes = (Permission.CHANGE, Permission.OPERATE, Permission.ADMINISTER)
    changing = {e.name for e in ENDPOINTS if e.permission in changes and e.method != "GET"}

    assert changing == {e.name for e in ENDPOINTS if e.audited}


def test_documentation_lists_the_permissions() -> None:
    page = (tree.ROOT / "docs" / "http.md").read_text("utf-8")

    for endpoint in ENDPOINTS:
        if endpoint.permission is None:
            continue
        roles = [role for role in Role if endpoint.permission in GRANTS[role]]
        marks = " | ".join("yes" if role in roles else "-" for role in Role)
        assert f"| `{endpoint.method} {endpoint.path}` | {marks} |" in page


@pytest.mark.req("A-20", "R-2")
@pytest.mark.parametrize("field", ["created_at", "expires_at", "revoked_at"])
async def test_key_with_a_time_without_zone_is_revoked(any_site: Site, field: str) -> None:
    admin = await any_site.key(Role.ADMIN)
    other = await any_site.key(Role.ADMIN)
    (record,) = [r for r in await every_record(any_site.store, API_KEYS) if r.key in other]
    data = {**msgspec.json.decode(record.data), field: "2099-01-01T00:00:00"}
    write = RecordWrite(kind=API_KEYS, key=record.key, data=msgspec.json.encode(data))
    await any_site.store.keep([write])
    any_site.forget_keys()

    assert 200 == (await any_site.get("/api/v1/audit", key=admin)).status
    assert 401 == (await any_site.get("/api/v1/audit", key=other)).status
