"""The same service over every store: jobs, keys, namespaces, events."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Worker
from holdfast.http.api_keys import Role
from tests.http.site import API, running
from tests.http.test_events import received
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.http.site import Site


@pytest.mark.req("A-1", "A-5", "A-7", "A-8", "S-5")
async def test_job_runs_from_submission_to_completion_over_http(any_site: Site) -> None:
    site = any_site
    begin = (await site.store.events(None, 0, timedelta(0))).cursor
    job_id = await site.submit("a", {"n": 1}, tags={"k": "'v%"}, idempotency_key="x")
    again = await site.post(
        f"{API}/jobs", {"type": "a", "payload": {"n": 1}, "idempotency_key": "x"}
    )
    waiting = asyncio.create_task(site.get(f"{API}/jobs/{job_id}/wait?timeout=20"))
    (claimed,) = await site.claim(wait=5)
    token = {"lease_token": claimed["lease_token"]}
    path = f"{API}/jobs/{job_id}"
    renewed = await site.post(f"{path}/heartbeat", token)
    await site.post(f"{path}/progress", {**token, "percent": 50})
    await site.post(f"{path}/checkpoint", {**token, "data": "AP8="})
    await site.post(f"{path}/log", {**token, "message": "half"})
    failed = await site.post(f"{path}/fail", {**token, "message": "again", "retry_after": 0})
    await site.store.promote(10)
    (second,) = await site.claim(wait=5)
    done = await site.post(
        f"{path}/complete", {"lease_token": second["lease_token"], "output": {"x": 1}}
    )
    stale = await site.post(f"{path}/complete", token)
    async with asyncio.timeout(10):
        waited = (await waiting).json

    assert (200, job_id) == (again.status, again.json["existing_job_id"])
    assert ({"n": 1}, renewed.json["held"]) == (claimed["payload"], True)
    assert ("RETRYING", "COMPLETED", 409) == (
        failed.json["state"],
        done.json["state"],
        stale.status,
    )
    assert ("AP8=", 2) == (second["checkpoint"], second["attempt"])
    assert ("COMPLETED", {"x": 1}) == (waited["state"], waited["result"]["output"])
    found = (await site.get(f"{API}/jobs?tags[k]='v%25&states=COMPLETED")).json
    assert [job_id] == [job["job_id"] for job in found["jobs"]]
    logs = (await site.get(f"{path}/logs")).json["logs"]
    assert ["half"] == [line["message"] for line in logs]
    assert 1 == (await site.get(f"{API}/stats")).json["completed"]
    events = await received(site, f"/events?after={begin}&tags[k]='v%25", 7)
    assert ["PENDING", "SCHEDULED", "RUNNING", None, "RETRYING", "SCHEDULED", "RUNNING"] == [
        e["transition"] and e["transition"]["to_state"] for e in events
    ]
    assert 200 == (await site.get("/health/ready")).status
    assert 404 == (await site.get(f"{API}/jobs/%00")).status
    assert b"holdfast_jobs{" in (await site.get("/metrics")).body


@pytest.mark.req("A-20")
async def test_keys_owners_namespaces_and_audit_over_every_store(any_site: Site) -> None:
    site = any_site
    acme, plain = await site.key(Role.ADMIN, "acme"), await site.key(Role.ADMIN)
    mine = await site.key(Role.SUBMITTER, "acme", live_jobs=2)
    job_id = await site.submit("a", 1, queue="q", key=mine)
    other = await site.submit("a", 2, queue="q", key=acme)
    await site.submit("a", 3, queue="q", key=plain)
    full = await site.post(
        f"{API}/jobs/batch", {"jobs": [{"type": "a", "payload": 1}] * 2}, key=mine
    )

    listed = {
        name: {j["job_id"] for j in (await site.get(f"{API}/jobs", key=key)).json["jobs"]}
        for name, key in (("mine", mine), ("acme", acme), ("plain", plain))
    }
    assert {job_id} == listed["mine"]
    assert {job_id, other} == listed["acme"]
    assert 1 == len(listed["plain"] - {job_id, other})
    assert 429 == full.status
    assert 404 == (await site.get(f"{API}/jobs/{other}", key=mine)).status
    assert 404 == (await site.get(f"{API}/jobs/{job_id}", key=plain)).status
    assert ["q"] == [q["name"] for q in (await site.get(f"{API}/queues", key=acme)).json["queues"]]
    cancelled = await site.post(f"{API}/jobs/{job_id}/cancel", {"reason": "r"}, key=mine)
    assert "CANCELLED" == cancelled.json["status"]
    stats = (await site.get(f"{API}/stats?breakdown_by=QUEUE", key=acme)).json
    assert (1, ["q"]) == (stats["cancelled"], list(stats["by_queue"]))
    entry, *made = (await site.get(f"{API}/audit", key=acme)).json["entries"]
    assert ("cancelJob", 200, "submitter") == (entry["action"], entry["status"], entry["role"])
    others = (await site.get(f"{API}/audit", key=plain)).json["entries"]
    assert ["createKey"] * 3 == [made.pop()["action"], made.pop()["action"], others.pop()["action"]]
    assert [] == made + others
    (claimed,) = await site.claim(key=acme, queues=["q"])
    assert (other, "q") == (claimed["job_id"], claimed["queue"])


@pytest.mark.req("M-6", "M-7")
async def test_jobs_submitted_over_http_follow_what_workers_declare(any_site: Site) -> None:
    site = any_site
    worker = Holdfast(store=site.store, queues={"money": "lease"})

    @worker.task("pay", queue="money", max_attempts=1, timeout=3)
    async def pay() -> None: ...

    await worker.start()
    await Worker(worker, queues=["money", "acme/money"], maintenance=False).run(burst=True)
    acme = await site.key(Role.ADMIN, "acme")
    plain = await site.key(Role.ADMIN)

    parent = await site.submit("parent", key=plain)
    (held,) = await site.claim(key=plain, queues=["default"])
    spawned = await site.post(
        f"{API}/jobs/{parent}/spawn",
        {"lease_token": held["lease_token"], "job": {"type": "pay", "payload": None}},
        key=plain,
    )
    batch = await site.post(
        f"{API}/jobs/batch", {"jobs": [{"type": "pay", "payload": None}]}, key=plain
    )
    ids = [
        (await site.submit("pay", key=plain)),
        batch.json["results"][0]["job_id"],
        spawned.json["job_id"],
    ]
    inside = await site.submit("pay", key=acme)

    found = await site.store.get(ids)
    assert [("money", 1, "lease", 3.0)] * 3 == [
        (job.queue, job.max_attempts, job.profile, job.timeout.total_seconds())
        for job in found
        if job
    ]
    (job,) = await site.store.get([inside])
    assert job is not None
    assert ("acme/money", 1) == (job.queue, job.max_attempts)
    explained = (await site.get(f"{API}/jobs/{ids[0]}/explain", key=plain)).json["settings"]
    assert {"value": 1, "origin": "TASK"} == explained["values"]["max_attempts"]
    assert "lease" == explained["profile"]


async def test_service_keeps_the_profiles_it_was_given_in_the_store(any_site: Site) -> None:
    store = any_site.store
    async with running(Holdfast(store=store, queues={"mail": "lease"})) as other:
        ids = [await site.submit("a", queue="mail") for site in (other, any_site)]
        first, second = await store.get(ids)

    assert first is not None
    assert second is not None
    assert ("lease", "lease") == (first.profile, second.profile)


@pytest.mark.req("M-6", "M-12", "S-8")
async def test_timeouts_and_bytes_of_workers_over_every_store(any_site: Site) -> None:
    site = any_site
    late_id = await site.submit("late", 1, timeout=0.2, max_attempts=1)
    (late,) = await site.claim(wait=5)
    token = {"lease_token": late["lease_token"]}
    path = f"{API}/jobs/{late_id}"

    async def timed_out() -> bool:
        return bool((await site.post(f"{path}/heartbeat", token)).json["timed_out"])

    await eventually(timed_out)
    refused = await site.post(f"{path}/complete", token)
    done_id = await site.submit("bytes", 2)
    (claimed,) = await site.claim(wait=5)
    body = {"lease_token": claimed["lease_token"], "output": "AP8=", "output_encoding": "base64"}
    await site.post(f"{API}/jobs/{done_id}/complete", body)
    result = (await site.get(f"{API}/jobs/{done_id}/result")).json

    stored = (await site.get(path)).json
    assert (409, "EXECUTION_TIMEOUT") == (refused.status, refused.code)
    assert ("DEAD_LETTER", "TIMEOUT") == (stored["state"], stored["failure"]["category"])
    assert ("AP8=", "base64") == (result["output"], result["output_encoding"])
    assert b"\x00\xff" == (await site.app.get(done_id)).output
