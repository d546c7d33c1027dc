"""The audit log: changes, keys made and revoked, and refused calls."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.http.api_keys import Role
from holdfast.http.key_changes import Actor, revoke_key
from holdfast.http.refusals import MAX_GROUPS
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore
from tests.http.site import API, running
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.http.site import Site

WRONG = "hf_000000000000_" + "0" * 64


@pytest.mark.req("A-20")
async def test_audit_log_records_calls_that_change_something(site: Site) -> None:
    admin, operator = await site.key(Role.ADMIN), await site.key(Role.OPERATOR)
    job_id = await site.submit(key=admin)

    await site.post(f"{API}/queues/q/pause", key=operator)
    cancelled = await site.post(f"{API}/jobs/{job_id}/cancel", {"reason": "why"}, key=operator)
    await site.post(f"{API}/jobs/missing/retry", key=operator)
    await site.call("DELETE", f"{API}/jobs/{job_id}", key=admin)
    await site.get(f"{API}/jobs", key=operator)
    page = (await site.get(f"{API}/audit?limit=3", key=admin)).json
    rest = (await site.get(f"{API}/audit?cursor={page['next_cursor']}", key=admin)).json

    entries = page["entries"] + rest["entries"]
    assert [
        ("deleteJob", "admin", 200),
        ("retryJob", "operator", 404),
        ("cancelJob", "operator", 200),
        ("pauseQueue", "operator", 200),
        ("createKey", "", 200),
        ("createKey", "", 200),
    ] == [(e["action"], e["role"], e["status"]) for e in entries]
    cancel = entries[2]
    assert (f"{API}/jobs/{job_id}/cancel", operator.split("_")[1], "127.0.0.1") == (
        cancel["target"],
        cancel["key_id"],
        cancel["client"],
    )
    assert '"why"' in cancel["detail"]
    assert cancelled.headers["x-request-id"] == cancel["request_id"]


async def test_audit_log_keeps_no_payload_and_no_secret(site: Site) -> None:
    admin = await site.key(Role.ADMIN)
    body = {"type": "greet", "name": "morning", "expression": "0 6 * * *"}
    made = await site.post(f"{API}/schedules", {**body, "payload": {"iban": "DE89"}}, key=admin)
    reason = {"reason": "x" * 180 + " password=" + "s3cret" * 9}
    await site.post(f"{API}/queues/q/pause", reason, key=admin)

    paused, created = (await _entries(site, admin, "createSchedule", "pauseQueue"))[:2]

    assert 201 == made.status
    assert "morning" in created["detail"]
    assert "DE89" not in created["detail"]
    assert "s3cret" not in paused["detail"]


async def test_audit_entries_are_deleted_after_ninety_days() -> None:
    clock = ManualClock()
    async with running(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        await site.post(f"{API}/queues/old/pause")
        clock.advance(timedelta(days=60))
        await site.post(f"{API}/queues/younger/pause")
        clock.advance(timedelta(days=31))
        await site.post(f"{API}/queues/new/pause")

        entries = (await site.get(f"{API}/audit")).json["entries"]

    assert ["new", "younger"] == [e["target"].split("/")[4] for e in entries]


async def _entries(site: Site, key: str, *actions: str) -> list[dict[str, Any]]:
    """Entries of some actions, newest first."""
    found = (await site.get(f"{API}/audit?limit=1000", key=key)).json["entries"]
    return [entry for entry in found if entry["action"] in actions]


@pytest.mark.req("A-20")
async def test_keys_made_and_revoked_are_in_the_audit_log_of_their_namespace(
    any_site: Site,
) -> None:
    site = any_site
    admin, plain = await site.key(Role.ADMIN, "acme"), await site.key(Role.ADMIN)
    worker = await site.key(Role.WORKER, "acme")
    worker_id = worker.split("_")[1]

    await revoke_key(site.store, worker_id, Actor("ada", "desk"))
    await revoke_key(site.store, worker_id, Actor("ada", "desk"))
    entries = await _entries(site, admin, "createKey", "revokeKey")
    others = await _entries(site, plain, "createKey", "revokeKey")

    assert [
        ("revokeKey", worker_id, "ada", "desk"),
        ("createKey", worker_id, "", ""),
        ("createKey", admin.split("_")[1], "", ""),
    ] == [(e["action"], e["target"], e["key_name"], e["client"]) for e in entries]
    assert "worker worker acme" == entries[0]["detail"]
    assert [plain.split("_")[1]] == [entry["target"] for entry in others]
    assert worker.rpartition("_")[2] not in str(entries)


@pytest.mark.req("A-20")
async def test_refused_calls_are_in_the_audit_log_with_key_and_address(any_site: Site) -> None:
    site = any_site
    admin, acme = await site.key(Role.ADMIN), await site.key(Role.ADMIN, "acme")
    worker = await site.key(Role.WORKER, "acme")
    worker_id = worker.split("_")[1]
    for _ in range(5):
        assert 403 == (await site.get(f"{API}/jobs", key=worker)).status
    forged = f"{worker[:-4]}0000"
    for secret in (None, WRONG, "nonsense", forged):
        assert 401 == (await site.post(f"{API}/jobs", {}, key=secret)).status

    async def written() -> bool:
        return len(await _entries(site, acme, "forbidden", "unauthorized")) == 2

    await eventually(written)
    (plain,) = await _entries(site, admin, "forbidden", "unauthorized")
    mine = {e["action"]: e for e in await _entries(site, acme, "forbidden", "unauthorized")}

    assert ("unauthorized", "", "127.0.0.1", 401, 3) == _gist(plain)
    assert f"POST {API}/jobs" == plain["target"]
    assert ("forbidden", worker_id, "127.0.0.1", 403, 5) == _gist(mine["forbidden"])
    assert "may not read" in mine["forbidden"]["detail"]
    assert ("unauthorized", worker_id, "127.0.0.1", 401, 1) == _gist(mine["unauthorized"])


def _gist(entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(entry[name] for name in ("action", "key_id", "client", "status", "count"))


@pytest.mark.req("A-20")
async def test_flood_of_refused_calls_costs_few_entries() -> None:
    store = MemoryStore()
    async with running(Holdfast(store=store)) as site:
        await site.key(Role.ADMIN)
        for n in range(2000):
            await site.get(f"{API}/jobs", client=f"10.0.{n % 40}.{n % 250}")
    kept = [record for record in await store.browse("audit") if b"unauthorized" in record.data]
    counts: Counter[bool] = Counter()
    for record in kept:
        counts[b'"client":"others"' in record.data] += 1

    assert {True: 1, False: MAX_GROUPS} == dict(counts)
    assert 2000 == sum(_count(record.data) for record in kept)


def _count(data: bytes) -> int:
    return int(data.rpartition(b'"count":')[2].rstrip(b"}"))


async def test_refused_calls_are_written_when_the_service_stops() -> None:
    store = MemoryStore()
    async with running(Holdfast(store=store)) as site:
        await site.key(Role.ADMIN)
        await site.get(f"{API}/jobs", key=WRONG)

    assert 1 == sum(b"unauthorized" in record.data for record in await store.browse("audit"))
