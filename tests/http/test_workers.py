"""Workers over HTTP: claim, renew and settle with the newest lease token."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.maintenance.reaper import Reaper
from holdfast.model import lifecycle
from holdfast.model.job import State
from holdfast.observe.observer import Silent
from holdfast.observe.redaction import Redaction
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Change, MemoryStore
from tests.http.site import API, running

if TYPE_CHECKING:
    from tests.http.site import Site


def path_of(job: dict[str, str], action: str) -> str:
    return f"{API}/jobs/{job['job_id']}/{action}"


@pytest.mark.req("S-5")
async def test_only_the_newest_lease_may_write() -> None:
    clock = ManualClock()
    async with running(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        await site.submit(lease=5, max_attempts=5)
        (first,) = await site.claim()
        clock.advance(6)
        (job,) = await site.store.overdue(10)
        await site.store.swap([Change(job, lifecycle.lease_lost(job, now=clock.now()))])
        clock.advance(2)
        await site.store.promote(10)
        (second,) = await site.claim()
        old, new = ({"lease_token": job["lease_token"]} for job in (first, second))

        refused = [
            await site.post(path_of(first, what), {**old, **more})
            for what, more in (
                ("progress", {"percent": 1}),
                ("checkpoint", {"data": ""}),
                ("log", {"message": "m"}),
                ("complete", {}),
                ("fail", {"message": "m"}),
                ("give-back", {}),
                ("spawn", {"job": {"type": "b", "payload": 1}}),
            )
        ]
        lost = await site.post(path_of(first, "heartbeat"), old)

        assert [(409, "STALE_LEASE")] * 7 == [(r.status, r.code) for r in refused]
        assert not lost.json["held"]
        assert (await site.post(path_of(second, "heartbeat"), new)).json["held"]
        done = [
            await site.post(path_of(second, "complete"), {**new, "output": 1}) for _ in range(2)
        ]
        assert [(200, "COMPLETED")] * 2 == [(r.status, r.json["state"]) for r in done]
        stored = (await site.get(f"{API}/jobs/{first['job_id']}")).json
        assert (1, None, None) == (stored["result"]["output"], stored["progress"], None)


@pytest.mark.req("S-5", "S-12")
async def test_completion_after_the_lease_ended_counts_while_no_other_worker_claimed() -> None:
    clock = ManualClock()
    async with running(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        await site.submit(lease=5)
        (job,) = await site.claim()
        clock.advance(60)

        reply = await site.post(path_of(job, "complete"), {"lease_token": job["lease_token"]})

        assert (200, "COMPLETED") == (reply.status, reply.json["state"])


@pytest.mark.req("S-7")
async def test_many_leases_are_renewed_in_one_call() -> None:
    clock = ManualClock()
    async with running(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        for _ in range(3):
            await site.submit(lease=30)
        jobs = await site.claim(limit=3)
        clock.advance(20)
        leases = [{"job_id": j["job_id"], "lease_token": j["lease_token"]} for j in jobs]
        leases.append({"job_id": "missing", "lease_token": "x"})

        states = (await site.post(f"{API}/workers/heartbeat", {"leases": leases})).json["leases"]

        assert [True, True, True, False] == [s["held"] for s in states]
        until = (clock.now() + timedelta(seconds=30)).isoformat().replace("+00:00", "Z")
        assert {until} == {s["lease_until"] for s in states[:3]}


@pytest.mark.req("A-12")
async def test_worker_receives_and_confirms_a_cancellation(site: Site) -> None:
    job_id = await site.submit()
    (job,) = await site.claim()
    token = {"lease_token": job["lease_token"]}

    requested = await site.post(f"{API}/jobs/{job_id}/cancel", {"reason": "why", "force": True})
    renewed = (await site.post(path_of(job, "heartbeat"), token)).json
    checkpoint = (await site.post(path_of(job, "checkpoint"), {**token, "data": "eA=="})).json
    ended = await site.post(
        path_of(job, "fail"), {**token, "message": "stopped", "category": "CANCELLED"}
    )

    assert "CANCEL_REQUESTED" == requested.json["status"]
    assert (True, True, "why") == tuple(
        renewed[n] for n in ("cancel_requested", "cancel_force", "cancel_reason")
    )
    assert checkpoint["cancel_requested"]
    assert "CANCELLED" == ended.json["state"]


async def test_claim_waits_for_jobs_of_its_types(site: Site) -> None:
    waiting = asyncio.create_task(site.claim(wait=20, types=["b"]))
    await asyncio.sleep(0.01)  # until it waits: no verb of the service tells
    await site.submit("a")
    await site.submit("b", {"x": [1]})

    async with asyncio.timeout(5):
        (job,) = await waiting

    assert ("b", {"x": [1]}) == (job["type"], job["payload"])
    assert [] == await site.claim(types=["b"], wait=0.01)


async def test_claim_takes_jobs_from_queues_in_order_up_to_its_limit(site: Site) -> None:
    for queue in ("low", "high", "low", "high"):
        await site.submit(queue, queue=queue)

    jobs = await site.claim(queues=["high", "low"], limit=3)

    assert ["high", "high", "low"] == [job["queue"] for job in jobs]


async def test_attempt_of_a_job_given_back_does_not_count(site: Site) -> None:
    await site.submit()
    (job,) = await site.claim()

    back = await site.post(path_of(job, "give-back"), {"lease_token": job["lease_token"]})
    (again,) = await site.claim()

    assert ("SCHEDULED", 1, job["job_id"]) == (
        back.json["state"],
        again["attempt"],
        again["job_id"],
    )


@pytest.mark.req("M-9")
async def test_spawned_child_is_the_same_for_the_same_key(site: Site) -> None:
    await site.submit()
    (job,) = await site.claim()
    body = {
        "lease_token": job["lease_token"],
        "key": "k",
        "job": {"type": "child", "payload": {"deep": [1, {"x": None}]}},
    }

    first, again = [await site.post(path_of(job, "spawn"), body) for _ in range(2)]
    wrong = await site.post(path_of(job, "spawn"), {**body, "key": "l", "job": {"type": "a b"}})

    assert (201, first.json) == (first.status, again.json)
    (child,) = await site.store.get([first.json["job_id"]])
    assert child is not None
    assert ("child", job["job_id"]) == (child.type, child.spawned_by)
    assert {"deep": [1, {"x": None}]} == json.loads(child.payload)
    assert {"type", "payload"} == set(wrong.fields)


@pytest.mark.req("M-2", "M-9")
async def test_spawned_child_with_an_idempotency_key_of_another_job_is_that_job(site: Site) -> None:
    await site.submit()
    (job,) = await site.claim()
    held = await site.post("/api/v1/jobs", {"type": "child", "payload": 1, "idempotency_key": "k"})
    body = {"lease_token": job["lease_token"]}
    child = {"type": "child", "payload": 1, "idempotency_key": "k"}

    same = await site.post(path_of(job, "spawn"), {**body, "job": child})
    other = await site.post(path_of(job, "spawn"), {**body, "job": {**child, "payload": 2}})

    assert (201, held.json["job_id"]) == (same.status, same.json["job_id"])
    assert (409, held.json["job_id"]) == (other.status, other.json["error"]["existing_job_id"])


async def test_worker_over_http_counts_as_present(site: Site) -> None:
    job_id = await site.submit(queue="q")
    before = (await site.get(f"{API}/jobs/{job_id}/explain")).json["cause"]
    await site.claim(queues=["q"], types=["other"])

    after = (await site.get(f"{API}/jobs/{job_id}/explain")).json

    assert "NO_WORKER" == before
    assert "has a handler for 'a'" in after["message"]


@pytest.mark.parametrize(
    ("what", "body", "fields"),
    [
        ("progress", {"percent": 101}, {"lease_token", "percent"}),
        ("checkpoint", {"lease_token": "t", "data": "%"}, {"data"}),
        ("log", {"lease_token": "t", "message": 1, "level": "LOUD"}, {"message", "level"}),
        ("complete", {"lease_token": 1, "x": 1}, {"lease_token", "x"}),
        ("fail", {"lease_token": "t", "category": "BAD"}, {"category", "message"}),
        ("fail", {"lease_token": "t", "message": "m", "retry_after": -1}, {"retry_after"}),
        ("fail", {"lease_token": "t", "message": "m", "context": {"a": 1}}, {"context"}),
        ("spawn", {"lease_token": "t", "job": 1}, {"job"}),
    ],
)
async def test_invalid_fields_of_workers_are_reported(
    site: Site, what: str, body: object, fields: set[str]
) -> None:
    reply = await site.post(f"{API}/jobs/x/{what}", body)

    assert (400, fields) == (reply.status, set(reply.fields))


@pytest.mark.parametrize("output", [b"NaN", b'"\\u0000"', b'"\\ud800"', b"[" * 100 + b"]" * 100])
async def test_output_that_no_store_accepts_is_refused(site: Site, output: bytes) -> None:
    await site.submit()
    (job,) = await site.claim()
    body = b'{"lease_token": "%s", "output": %s}' % (job["lease_token"].encode(), output)

    reply = await site.post(path_of(job, "complete"), raw=body)

    assert 400 == reply.status
    (stored,) = await site.store.get([job["job_id"]])
    assert stored is not None
    assert State.RUNNING is stored.state


@pytest.mark.req("M-6", "S-8")
async def test_renewal_after_the_deadline_fails_the_attempt_as_a_timeout() -> None:
    clock = ManualClock()
    async with running(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        job_id = await site.submit(timeout=20, lease=30, max_attempts=2)
        (job,) = await site.claim()
        token = {"lease_token": job["lease_token"]}
        clock.advance(19)
        early = (await site.post(path_of(job, "heartbeat"), token)).json
        clock.advance(1)

        late, again = [(await site.post(path_of(job, "heartbeat"), token)).json for _ in range(2)]
        noted = [
            await site.post(path_of(job, "progress"), {**token, "percent": 1}),
            await site.post(path_of(job, "spawn"), {**token, "job": {"type": "b", "payload": 1}}),
        ]
        stored = (await site.get(f"{API}/jobs/{job_id}")).json

        assert (True, False) == (early["held"], early["timed_out"])
        assert [(False, True)] * 2 == [(s["held"], s["timed_out"]) for s in (late, again)]
        assert [(409, "EXECUTION_TIMEOUT")] * 2 == [(r.status, r.code) for r in noted]
        assert ("RETRYING", "TIMEOUT", "EXECUTION_TIMEOUT", 20_000) == (
            stored["state"],
            *(stored["failure"][name] for name in ("category", "code", "duration_ms")),
        )


@pytest.mark.req("M-6", "S-8")
@pytest.mark.parametrize("lapsed", [False, True])
async def test_completion_after_the_deadline_is_refused_each_time(lapsed: bool) -> None:
    clock = ManualClock()
    async with running(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        job_id = await site.submit(timeout=20, lease=5, max_attempts=1)
        (job,) = await site.claim()
        body = {"lease_token": job["lease_token"], "output": 1}
        if not lapsed:
            clock.advance(19)
            await site.post(path_of(job, "heartbeat"), {"lease_token": job["lease_token"]})
        clock.advance(21)

        refused = [await site.post(path_of(job, "complete"), body) for _ in range(2)]

        assert [(409, "EXECUTION_TIMEOUT")] * 2 == [(r.status, r.code) for r in refused]
        stored = (await site.get(f"{API}/jobs/{job_id}")).json
        assert ("DEAD_LETTER", None, "TIMEOUT") == (
            stored["state"],
            stored["result"]["output"],
            stored["failure"]["category"],
        )


@pytest.mark.req("M-6", "M-11")
@pytest.mark.parametrize(
    ("category", "message"),
    [("TIMEOUT", "slow"), ("PERMANENT", "execution took longer than 20 s")],
)
async def test_failure_after_the_deadline_is_a_timeout(category: str, message: str) -> None:
    clock = ManualClock()
    async with running(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        job_id = await site.submit(timeout=20, lease=60, retry_timeouts=False)
        (job,) = await site.claim()
        clock.advance(21)
        body = {"lease_token": job["lease_token"], "message": "slow", "category": category}

        reply = await site.post(path_of(job, "fail"), body)

        stored = (await site.get(f"{API}/jobs/{job_id}")).json
        assert (200, "FAILED") == (reply.status, reply.json["state"])
        assert ("TIMEOUT", message) == tuple(stored["failure"][n] for n in ("category", "message"))


@pytest.mark.req("M-11")
@pytest.mark.parametrize(("retry", "state"), [(True, "RETRYING"), (False, "FAILED")])
async def test_crash_is_retried_unless_the_job_forbids_it(*, retry: bool, state: str) -> None:
    clock = ManualClock()
    async with running(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        await site.submit(retry_crashes=retry)
        (job,) = await site.claim()
        body = {"lease_token": job["lease_token"], "message": "killed", "category": "SYSTEM"}

        reply = await site.post(path_of(job, "fail"), body)

        assert (200, state) == (reply.status, reply.json["state"])


@pytest.mark.req("M-6", "S-6")
@pytest.mark.parametrize(("timeout", "code"), [(20, "EXECUTION_TIMEOUT"), (40, "LEASE_EXPIRED")])
async def test_silent_worker_over_http_is_timed_out_or_lost(timeout: int, code: str) -> None:
    clock = ManualClock()
    async with running(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        job_id = await site.submit(timeout=timeout, lease=30)
        await site.claim()
        clock.advance(30)

        await Reaper(site.store, Randomness(), Silent()).once()

        stored = (await site.get(f"{API}/jobs/{job_id}")).json
        assert ("RETRYING", code) == (stored["state"], stored["failure"]["code"])


@pytest.mark.req("M-10")
async def test_claim_gives_what_a_handler_of_the_library_gets(site: Site) -> None:
    first = await site.submit("a", 1)
    (parent,) = await site.claim()
    body = {"lease_token": parent["lease_token"], "output": "/wA=", "output_encoding": "base64"}
    wrong = await site.post(path_of(parent, "complete"), {**body, "output": "%"})
    await site.post(path_of(parent, "complete"), body)
    await site.submit("b", 2, depends_on=[first], idempotency_key="k", timeout=60)
    (before,) = await site.claim()
    await site.post(path_of(before, "give-back"), {"lease_token": before["lease_token"]})

    (job,) = await site.claim()
    token = {"lease_token": job["lease_token"]}
    outputs = await site.post(path_of(job, "dependency-results"), token)
    stale = await site.post(path_of(job, "dependency-results"), {"lease_token": "x"})
    status = await site.app.get(first)

    assert (400, {"output"}) == (wrong.status, set(wrong.fields))
    assert (2, before["attempt_id"], "k", [first]) == tuple(
        job[name]
        for name in ("lease_version", "previous_attempt_id", "idempotency_key", "depends_on")
    )
    (stored,) = await site.store.get([job["job_id"]])
    assert stored is not None
    assert stored.started_at is not None
    deadline = stored.started_at + timedelta(seconds=60)
    assert deadline == datetime.fromisoformat(job["deadline"])
    assert {first: {"output": "/wA=", "output_encoding": "base64"}} == outputs.json["results"]
    assert (409, "STALE_LEASE") == (stale.status, stale.code)
    assert status.result is not None
    assert (b"\xff\x00", "base64") == (status.output, status.result.output_encoding)


@pytest.mark.req("A-6")
async def test_progress_and_lines_over_http_carry_the_attempt_of_their_lease(site: Site) -> None:
    job_id = await site.submit(max_attempts=3)
    (job,) = await site.claim()
    await site.post(path_of(job, "progress"), {"lease_token": job["lease_token"], "percent": 90})
    body = {"lease_token": job["lease_token"], "message": "m", "retry_after": 0}
    await site.post(path_of(job, "fail"), body)
    await site.store.promote(10)
    (again,) = await site.claim()
    line = {"lease_token": again["lease_token"], "message": "line"}
    await site.post(path_of(again, "log"), line)

    status = (await site.get(f"{API}/jobs/{job_id}")).json
    logs = (await site.get(f"{API}/jobs/{job_id}/logs")).json["logs"]

    assert (2, 1) == (status["attempt"], status["progress"]["attempt"])
    assert [2] == [line["attempt"] for line in logs]


@pytest.mark.req("A-10")
async def test_body_may_repeat_the_job_of_the_path_and_no_other(site: Site) -> None:
    job_id = await site.submit()

    other = await site.post(f"{API}/jobs/{job_id}/cancel", {"job_id": "x", "reason": "r"})
    same = await site.post(f"{API}/jobs/{job_id}/cancel", {"job_id": job_id, "reason": "r"})

    assert (400, {"job_id": "CONFLICT"}) == (other.status, other.fields)
    assert (200, "CANCELLED") == (same.status, same.json["status"])


@pytest.mark.req("M-12")
async def test_texts_of_workers_are_masked_before_they_are_stored() -> None:
    secret = "s3cr3t-9f1c"
    async with running(Holdfast("memory://", redaction=Redaction("iban"))) as site:
        job_id = await site.submit(max_attempts=1)
        (job,) = await site.claim()
        token = {"lease_token": job["lease_token"]}
        for action, body in (
            ("progress", {"percent": 1, "message": f"iban: {secret}"}),
            ("log", {"message": f"pwd={secret}", "fields": {"token": secret, "page": "3"}}),
            (
                "fail",
                {
                    "message": f"postgresql://me:{secret}@db/x",
                    "code": f"password={secret}",
                    "stack_trace": f'{{\\"password\\": \\"{secret}\\"}}',
                    "context": {"api_key": secret, "url": f"https://h/?sig={secret}"},
                },
            ),
        ):
            assert 200 == (await site.post(path_of(job, action), {**token, **body})).status

        (stored,) = await site.store.get([job_id])
        logs = await site.get(f"{API}/jobs/{job_id}/logs")
        failure = await site.get(f"{API}/jobs/{job_id}/failure")

        assert secret not in repr(stored)
        assert secret.encode() not in logs.body + failure.body
        assert "postgresql://me:***@db/x" in repr(stored)
        assert b'"page":"3"' in logs.body
