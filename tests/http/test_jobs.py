"""Jobs over HTTP: submit, read, wait, search, change."""

from __future__ import annotations

import asyncio
import base64
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.model.job import State
from tests.http.site import API

if TYPE_CHECKING:
    from tests.http.site import Site

JOB_STATUS = {
    *("job_id", "type", "state", "attempt", "created_at", "updated_at", "scheduled_for"),
    *("started_at", "completed_at", "progress", "result", "history", "priority", "tags"),
    "correlation_id",
}


@pytest.mark.req("A-1")
async def test_job_is_stored_before_the_response(site: Site) -> None:
    body = {
        "type": "email.send",
        "payload": {"to": "a@b.c"},
        "priority": "HIGH",
        "tags": {"tenant": "x"},
        "correlation_id": "c-1",
        "max_attempts": 7.0,
        "timeout": "PT1M",
        "backoff": {"strategy": "LINEAR", "initial_delay": 2, "max_delay": "PT1H"},
    }

    reply = await site.post(f"{API}/jobs", body)

    assert (201, "ACCEPTED", "SCHEDULED") == (
        reply.status,
        reply.json["status"],
        reply.json["state"],
    )
    (job,) = await site.store.get([reply.json["job_id"]])
    assert job is not None
    assert (b'{"to": "a@b.c"}', 1, 7) == (job.payload, job.priority, job.max_attempts)
    assert timedelta(minutes=1) == job.timeout
    assert f"{API}/jobs/{job.id}" == reply.headers["location"]


@pytest.mark.req("M-12")
async def test_payload_is_stored_byte_for_byte(site: Site) -> None:
    odd = b'{"type": "a", "payload" : {"b" : 1.0, "a":\t[ 1e3 ] } }'
    reply = await site.post(f"{API}/jobs", raw=odd)
    as_base64 = {"type": "a", "payload": "AP8=", "payload_encoding": "base64"}
    second = await site.post(f"{API}/jobs", as_base64)

    one, two = await site.store.get([reply.json["job_id"], second.json["job_id"]])

    assert one is not None
    assert two is not None
    assert (b'{"b" : 1.0, "a":\t[ 1e3 ] }', b"\x00\xff") == (one.payload, two.payload)


@pytest.mark.req("M-2", "A-10")
async def test_idempotency_key_is_read_from_body_or_header(site: Site) -> None:
    body = {"type": "a", "payload": {"b": 1, "c": 2}}
    header = {"idempotency-key": "k"}

    first = await site.post(f"{API}/jobs", body, headers=header)
    again = await site.post(
        f"{API}/jobs", {**body, "payload": {"c": 2, "b": 1}, "idempotency_key": "k"}
    )
    other = await site.post(f"{API}/jobs", {**body, "payload": 2}, headers=header)
    conflicting = await site.post(f"{API}/jobs", {**body, "idempotency_key": "x"}, headers=header)

    assert (201, 200, 409, 400) == (first.status, again.status, other.status, conflicting.status)
    assert ("DUPLICATE", first.json["job_id"]) == (
        again.json["status"],
        again.json["existing_job_id"],
    )
    assert ("DUPLICATE", first.json["job_id"]) == (
        other.code,
        other.json["error"]["existing_job_id"],
    )
    assert {"idempotency_key": "CONFLICT"} == conflicting.fields


@pytest.mark.req("A-2")
async def test_atomic_batch_is_all_or_nothing(site: Site) -> None:
    good = {"type": "a", "payload": 1, "ref": "first"}
    bad = {"type": "a b", "payload": 1, "depends_on": ["first"], "extra": True}

    refused = await site.post(f"{API}/jobs/batch", {"jobs": [good, bad, 3]})
    accepted = await site.post(
        f"{API}/jobs/batch",
        {"jobs": [good, {"type": "b", "payload": None, "depends_on": ["first"]}], "atomic": True},
    )

    assert 400 == refused.status
    assert {"jobs[1].type", "jobs[1].extra", "jobs[2].body"} <= set(refused.fields)
    assert (2, 2, 0) == tuple(accepted.json[n] for n in ("total", "accepted", "rejected"))
    assert 2 == (await site.get(f"{API}/jobs")).json["total_count"]


@pytest.mark.req("A-2", "A-3")
async def test_batch_that_is_not_atomic_has_a_result_per_job(site: Site) -> None:
    jobs = [{"type": "a", "payload": 1}, {"type": ""}, {"type": "a", "payload": 2}]

    reply = await site.post(f"{API}/jobs/batch", {"jobs": jobs, "atomic": False})

    assert (3, 2, 1) == tuple(reply.json[n] for n in ("total", "accepted", "rejected"))
    wrong = reply.json["results"][1]
    assert ("REJECTED", "INVALID_REQUEST") == (wrong["status"], wrong["error"]["code"])
    assert {"type", "payload"} == {one["field"] for one in wrong["error"]["details"]}


@pytest.mark.req("A-2")
@pytest.mark.parametrize("count", [0, 1001])
async def test_batch_holds_1_to_1000_jobs(site: Site, count: int) -> None:
    jobs = [{"type": "a", "payload": 1}] * count

    reply = await site.post(f"{API}/jobs/batch", {"jobs": jobs})

    assert (400, {"jobs": "OUT_OF_RANGE"}) == (reply.status, reply.fields)


@pytest.mark.req("A-2", "S-12")
async def test_batch_repeated_with_its_key_creates_no_job(site: Site) -> None:
    jobs = [{"type": "a", "payload": 1}, {"type": "a", "payload": 1}]
    header = {"idempotency-key": "k"}

    first = await site.post(f"{API}/jobs/batch", {"jobs": jobs}, headers=header)
    again = await site.post(f"{API}/jobs/batch", {"jobs": jobs}, headers=header)

    ids = [r["job_id"] for r in first.json["results"]]
    assert 2 == len(set(ids))
    assert ids == [r["job_id"] for r in again.json["results"]]
    assert {"DUPLICATE"} == {r["status"] for r in again.json["results"]}


@pytest.mark.req("A-5", "A-9")
async def test_job_has_the_documented_fields(site: Site) -> None:
    job_id = await site.submit("a", 1, tags={"k": "v"}, correlation_id="c")
    (claimed,) = await site.claim()
    token = {"lease_token": claimed["lease_token"]}
    await site.post(f"{API}/jobs/{job_id}/progress", {**token, "percent": 40, "message": "m"})
    await site.post(f"{API}/jobs/{job_id}/complete", {**token, "output": {"n": [1]}})

    job = (await site.get(f"{API}/jobs/{job_id}?include_history=true")).json
    plain = (await site.get(f"{API}/jobs/{job_id}?include_result=false")).json

    assert JOB_STATUS <= set(job)
    assert ("COMPLETED", "NORMAL", {"k": "v"}, "c") == (
        job["state"],
        job["priority"],
        job["tags"],
        job["correlation_id"],
    )
    assert {"percent": 40, "message": "m"} == {
        n: job["progress"][n] for n in ("percent", "message")
    }
    assert ("SUCCESS", {"n": [1]}, 1) == tuple(
        job["result"][n] for n in ("status", "output", "attempt")
    )
    assert isinstance(job["result"]["duration_ms"], int)
    assert ["PENDING", "SCHEDULED", "RUNNING", "COMPLETED"] == [
        e["to_state"] for e in job["history"]
    ]
    assert {"from_state", "to_state", "timestamp", "reason"} <= set(job["history"][0])
    assert job["created_at"].endswith("Z")
    assert datetime.fromisoformat(job["created_at"]).utcoffset() == timedelta(0)
    assert (None, None) == (plain["result"], plain["history"])


@pytest.mark.req("A-10")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("PATCH", ""),
        ("GET", "/result"),
        ("GET", "/wait"),
        ("GET", "/failure"),
        ("GET", "/explain"),
        ("GET", "/logs"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("POST", "/release"),
    ],
)
async def test_unknown_job_is_not_found(site: Site, method: str, path: str) -> None:
    for job_id in ("missing", "%00", "..%2f..", "%ff", "x" * 10_000, "{id}", "a%0d%0ab"):
        reply = await site.call(method, f"{API}/jobs/{job_id}{path}")

        assert (404, "NOT_FOUND") == (reply.status, reply.code)
        assert reply.headers["x-request-id"] == reply.json["error"]["request_id"]


@pytest.mark.req("A-5")
async def test_wait_responds_when_the_job_ends(site: Site) -> None:
    job_id = await site.submit()
    waiting = asyncio.create_task(site.get(f"{API}/jobs/{job_id}/wait?timeout=30"))
    (claimed,) = await site.claim()
    assert not waiting.done()

    await site.post(
        f"{API}/jobs/{job_id}/complete", {"lease_token": claimed["lease_token"], "output": 5}
    )
    async with asyncio.timeout(5):
        reply = await waiting

    assert ("COMPLETED", 5) == (reply.json["state"], reply.json["result"]["output"])


async def test_wait_responds_with_the_unfinished_job_after_its_timeout(site: Site) -> None:
    job_id = await site.submit()

    reply = await site.get(f"{API}/jobs/{job_id}/wait?timeout=PT0.01S")
    too_long = await site.get(f"{API}/jobs/{job_id}/wait?timeout=61")

    assert (200, "SCHEDULED") == (reply.status, reply.json["state"])
    assert (400, {"timeout": "INVALID"}) == (too_long.status, too_long.fields)


@pytest.mark.req("A-7")
async def test_search_reads_filters_from_query_or_body_and_has_pages(site: Site) -> None:
    for n in range(5):
        await site.submit("a" if n % 2 else "b", n, tags={"n": str(n), "all": "x"})

    first = await site.get(f"{API}/jobs?limit=2&order=CREATED_ASC&tags[all]=x&types=a&types=b")
    rest = await site.get(
        f"{API}/jobs?limit=1000&order=CREATED_ASC&tags[all]=x&cursor={first.json['next_cursor']}"
    )
    body = await site.post(
        f"{API}/jobs/search", {"types": ["a"], "states": ["SCHEDULED"], "tags": {"n": "3"}}
    )

    assert (5, True, 2) == (
        first.json["total_count"],
        first.json["has_more"],
        len(first.json["jobs"]),
    )
    found = [job["tags"]["n"] for job in first.json["jobs"] + rest.json["jobs"]]
    assert ["0", "1", "2", "3", "4"] == found
    assert (None, False) == (rest.json["next_cursor"], rest.json["has_more"])
    assert ["3"] == [job["tags"]["n"] for job in body.json["jobs"]]


@pytest.mark.req("A-3", "A-7")
async def test_invalid_filters_are_all_reported_at_once(site: Site) -> None:
    query = "states=LOST&limit=0&order=UP&cursor=%3B&created_after=now&nonsense=1&limit=5"
    reply = await site.get(f"{API}/jobs?{query}")
    body = await site.post(f"{API}/jobs/search", {"limit": "5", "tags": [], "huh": 1})

    assert 400 == reply.status
    assert {"nonsense": "UNKNOWN_FIELD", "limit": "NOT_UNIQUE"} == reply.fields
    assert {"limit": "OUT_OF_RANGE", "tags": "INVALID", "huh": "UNKNOWN_FIELD"} == body.fields
    again = await site.get(f"{API}/jobs?states=LOST&limit=0&order=UP&created_after=now")
    assert {"states", "limit", "order", "created_after"} == set(again.fields)


@pytest.mark.req("A-14", "A-15")
async def test_failures_are_listed_by_attempt_and_counted(site: Site) -> None:
    job_id = await site.submit("a", max_attempts=1)
    (claimed,) = await site.claim()
    failure = {
        "lease_token": claimed["lease_token"],
        "message": "no mailbox",
        "category": "PERMANENT",
        "code": "NO_BOX",
        "stack_trace": "line 1",
        "context": {"box": "b"},
        "host": "h",
    }
    await site.post(f"{API}/jobs/{job_id}/fail", failure)

    details = (await site.get(f"{API}/jobs/{job_id}/failure")).json
    page = (await site.get(f"{API}/failures?failure_category=PERMANENT&error_code=NO_BOX")).json

    assert ("FAILED", 1) == (details["final_state"], details["total_attempts"])
    assert {
        "category": "PERMANENT",
        "code": "NO_BOX",
        "message": "no mailbox",
        "stack_trace": "line 1",
        "context": {"box": "b"},
        "worker_id": "w",
        "host": "h",
        "attempt": 1,
    }.items() <= details["failure"].items()
    assert {"timestamp", "duration_ms"} <= set(details["failure"])
    assert ["FAILURE"] == [a["result"] for a in details["attempts"]]
    assert (1, {"PERMANENT": 1}, {"NO_BOX": 1}, {"a": 1}) == (
        page["total_count"],
        page["by_category"],
        page["by_code"],
        page["by_type"],
    )


@pytest.mark.req("M-13", "A-20")
async def test_metadata_is_changed_and_the_change_audited(site: Site) -> None:
    path = f"{API}/jobs/{await site.submit(tags={'old': '1'})}"

    changed = await site.call(
        "PATCH", path, {"tags": {"new": "1"}, "priority": 1, "correlation_id": None}
    )
    faults = await site.call("PATCH", path, {"tags": {"holdfast:x": "1"}})
    wrong = await site.call("PATCH", path, {"priority": "URGENT", "callback_url": "x", "queue": ""})
    invalid = await site.call("PATCH", path, {"priority": "URGENT", "callback_url": "x"})
    moved = await site.call("PATCH", path, {"delay": "PT1H"})
    await site.claim()
    late = await site.call("PATCH", path, {"priority": "LOW"})
    delayed = f"{API}/jobs/{await site.submit(delay=3600)}"
    now = await site.call("PATCH", delayed, {"delay": 0, "scheduled_at": None})
    soon = await site.call("PATCH", delayed, {"scheduled_at": "soon"})

    assert (200, "UPDATED", "SCHEDULED") == (
        changed.status,
        changed.json["status"],
        changed.json["state"],
    )
    job = (await site.get(path)).json
    assert ({"new": "1"}, "HIGH") == (job["tags"], job["priority"])
    assert {"tags": "RESERVED"} == faults.fields
    assert ("NOT_WAITING", "UPDATED") == (moved.json["status"], now.json["status"])
    assert {"scheduled_at": "INVALID_TIMESTAMP"} == soon.fields
    assert {"queue": "UNKNOWN_FIELD"} == wrong.fields
    assert {"priority": "INVALID", "callback_url": "INVALID"} == invalid.fields
    assert (200, "NOT_WAITING", "RUNNING") == (late.status, late.json["status"], late.json["state"])
    entries = (await site.get(f"{API}/audit")).json["entries"]
    assert "updateJob" in [entry["action"] for entry in entries]


@pytest.mark.req("A-11", "A-13", "A-16", "L-2")
async def test_jobs_are_cancelled_retried_released_and_deleted(site: Site) -> None:
    held = await site.submit(hold=True)
    released = await site.post(f"{API}/jobs/{held}/release")
    cancelled = await site.post(f"{API}/jobs/{held}/cancel", {"reason": "why", "force": True})
    again = await site.post(f"{API}/jobs/{held}/cancel", {})
    deleted = await site.call("DELETE", f"{API}/jobs/{held}")
    failed = await site.submit(max_attempts=1)
    (claimed,) = await site.claim()
    token = {"lease_token": claimed["lease_token"]}
    await site.post(f"{API}/jobs/{failed}/fail", {**token, "message": "x"})
    retried = await site.post(
        f"{API}/jobs/{failed}/retry", {"reset_attempts": True, "priority": "LOW", "delay": 60}
    )
    preview = await site.post(f"{API}/jobs/cancel", {"job_ids": [failed, "no"], "dry_run": True})
    many = await site.post(f"{API}/jobs/cancel", {"filter": {"types": ["a"]}, "reason": "r"})
    both = await site.post(f"{API}/jobs/cancel", {"filter": {}, "job_ids": []})
    paged = await site.post(f"{API}/jobs/cancel", {"filter": {"types": ["a"], "limit": 1}})

    assert ("RELEASED", "SCHEDULED") == (released.json["status"], released.json["new_state"])
    assert ("CANCELLED", "SCHEDULED", "why") == tuple(
        cancelled.json[n] for n in ("status", "previous_state", "message")
    )
    assert ("ALREADY_COMPLETE", "DELETED") == (again.json["status"], deleted.json["status"])
    assert ("QUEUED", "DELAYED") == (retried.json["status"], retried.json["new_state"])
    assert (2, 1, 0, 1) == tuple(
        preview.json[n] for n in ("requested", "cancelled", "skipped", "failed")
    )
    assert 1 == many.json["cancelled"]
    assert (400, {"job_ids": "CONFLICT"}) == (both.status, both.fields)
    assert (400, {"filter.limit": "UNSUPPORTED"}) == (paged.status, paged.fields)
    (job,) = await site.store.get([failed])
    assert job is not None
    assert State.CANCELLED is job.state


@pytest.mark.req("A-8")
async def test_statistics_queues_workers_and_explanations_are_returned(site: Site) -> None:
    job_id = await site.submit(queue="q")
    await site.claim(queues=["q"], types=["a"])

    stats = (
        await site.get(f"{API}/stats?time_range=PT5M&breakdown_by=TYPE&breakdown_by=STATE")
    ).json
    paused = await site.post(f"{API}/queues/q/pause")
    listed = (await site.get(f"{API}/queues")).json["queues"]
    resumed = await site.post(f"{API}/queues/q/resume")
    workers = (await site.get(f"{API}/workers")).json["workers"]
    why = (await site.get(f"{API}/jobs/{job_id}/explain")).json
    wrong = await site.post(f"{API}/queues/a%20b/pause")

    assert (1, 1, 0) == (stats["running"], stats["by_type"]["a"]["running"], stats["completed"])
    assert stats["queue_latency"]["p50"].startswith("PT")
    assert ("q", True, "") == (
        paused.json["queue"],
        paused.json["paused"],
        paused.json["pause"]["reason"],
    )
    assert [("q", True, 1)] == [(q["name"], q["paused"], q["counts"]["RUNNING"]) for q in listed]
    assert not resumed.json["paused"]
    assert [("w", ["q"], ["a"])] == [(w["id"], w["queues"], w["types"]) for w in workers]
    assert ("RUNNING", job_id) == (why["cause"], why["job_id"])
    assert {"queue": "INVALID"} == wrong.fields


async def test_worker_receives_bytes_as_base64(site: Site) -> None:
    body = {
        "type": "a",
        "payload": base64.b64encode(b"\xff").decode(),
        "payload_encoding": "base64",
    }
    await site.post(f"{API}/jobs", body)

    (claimed,) = await site.claim()

    assert ("base64", "/w==") == (claimed["payload_encoding"], claimed["payload"])


@pytest.mark.req("M-2", "A-3")
async def test_key_of_a_batch_leaves_room_for_the_positions(site: Site) -> None:
    body = {"jobs": [{"type": "a", "payload": 1}] * 2}
    replies = [
        await site.call(
            "POST", f"{API}/jobs/batch", body, headers={"idempotency-key": "k" * length}
        )
        for length in (252, 252, 253)
    ]

    assert [200, 200, 400] == [reply.status for reply in replies]
    assert ["DUPLICATE"] * 2 == [r["status"] for r in replies[1].json["results"]]
    assert ["Idempotency-Key"] == list(replies[2].fields)


@pytest.mark.req("A-13", "A-16")
async def test_many_jobs_are_retried_and_deleted_as_an_operator_saw_them(site: Site) -> None:
    failed = await site.submit(max_attempts=1)
    (claimed,) = await site.claim()
    token = {"lease_token": claimed["lease_token"]}
    await site.post(f"{API}/jobs/{failed}/fail", {**token, "message": "x"})
    as_of = (await site.call("GET", f"{API}/jobs/{failed}")).json["updated_at"]
    selected = {"filter": {"types": ["a"]}, "as_of": as_of}
    before = {**selected, "as_of": "2000-01-01T00:00:00Z"}

    skipped = await site.post(f"{API}/jobs/retry", before)
    counted = await site.post(f"{API}/jobs/retry", {**selected, "dry_run": True})
    retried = await site.post(f"{API}/jobs/retry", {**selected, "delay": "PT1H"})
    live = await site.post(f"{API}/jobs/delete", {"job_ids": [failed, "no"]})
    await site.post(f"{API}/jobs/{failed}/cancel", {})
    deleted = await site.post(f"{API}/jobs/delete", {"filter": {"types": ["a"]}})
    bad = await site.post(f"{API}/jobs/delete", {"job_ids": [failed], "as_of": "soon"})

    names = ("requested", "retried", "skipped", "failed", "dry_run")
    assert [1, 0, 1, 0, False] == [skipped.json[n] for n in names]
    assert [1, 1, 0, 0, True] == [counted.json[n] for n in names]
    assert [1, 1, 0, 0, False] == [retried.json[n] for n in names]
    names = ("requested", "deleted", "skipped", "failed", "dry_run")
    assert [2, 0, 1, 1, False] == [live.json[n] for n in names]
    assert ["no"] == [error["job_id"] for error in live.json["errors"]]
    assert [1, 1, 0, 0, False] == [deleted.json[n] for n in names]
    assert (400, ["as_of"]) == (bad.status, list(bad.fields))
