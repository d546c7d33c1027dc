"""Keys, leases and worker names of one tenant do nothing for another, on every store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.http.api_keys import Role, list_keys
from holdfast.http.permissions import Caller
from holdfast.http.rate_limits import HELD_FOR
from tests.conformance.conftest import SERVED
from tests.conformance.stores import NAMES, PLACES
from tests.http.site import API, running

if TYPE_CHECKING:
    from tests.http.site import Reply, Site

KEYED = {"type": "a", "payload": 1, "idempotency_key": "order-7"}
VERBS: dict[str, dict[str, Any]] = {
    "heartbeat": {},
    "dependency-results": {},
    "progress": {"percent": 50},
    "checkpoint": {"data": "AP8="},
    "log": {"message": "line"},
    "spawn": {"job": {"type": "child", "payload": 1}},
    "fail": {"message": "no"},
    "give-back": {},
    "complete": {},
}


@pytest.fixture(params=[pytest.param(name, marks=SERVED.get(name, ())) for name in NAMES])
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _answer(reply: Reply) -> tuple[int, str | None]:
    return reply.status, reply.json.get("existing_job_id")


@pytest.mark.req("A-20", "M-2")
async def test_idempotency_key_of_a_submitter_tells_other_submitters_nothing(
    any_site: Site,
) -> None:
    site = any_site
    mine, other = await site.key(Role.SUBMITTER), await site.key(Role.SUBMITTER)
    tenant = await site.key(Role.SUBMITTER, "acme")
    admin = await site.key(Role.ADMIN)
    keys = (mine, other, tenant, admin)

    first = [await site.post(f"{API}/jobs", KEYED, key=key) for key in keys]
    again = [await site.post(f"{API}/jobs", KEYED, key=key) for key in keys]
    conflict = [await site.post(f"{API}/jobs", {**KEYED, "payload": 2}, key=key) for key in keys]
    (claimed,) = await site.claim(key=admin, limit=1)

    assert [201] * 4 == [reply.status for reply in first]
    assert 4 == len({reply.json["job_id"] for reply in first})
    assert [(200, reply.json["job_id"]) for reply in first] == [_answer(reply) for reply in again]
    assert [409] * 4 == [reply.status for reply in conflict]
    assert "order-7" == claimed["idempotency_key"]


@pytest.mark.redis
@pytest.mark.req("A-20", "M-2", stores=["redis"])
async def test_type_that_spells_another_namespace_does_not_reach_its_keys(
    request: pytest.FixtureRequest,
) -> None:
    with PLACES["redis"](request) as place:
        async with running(Holdfast(place.url, queues={"default": "bullmq"})) as site:
            acme, plain = await site.key(Role.ADMIN, "acme"), await site.key(Role.ADMIN)
            await site.submit(payload=1, idempotency_key="order-7", key=acme)

            forged = {**KEYED, "type": "a@acme", "payload": 2}
            reply = await site.post(f"{API}/jobs", forged, key=plain)
            (claimed,) = await site.claim(key=plain)

    assert (201, "order-7") == (reply.status, claimed["idempotency_key"])


@pytest.mark.req("A-20", "S-5")
async def test_lease_token_is_worth_nothing_in_another_namespace(any_site: Site) -> None:
    site = any_site
    acme = await site.key(Role.WORKER, "acme")
    admin = await site.key(Role.ADMIN, "acme")
    thieves = [await site.key(Role.WORKER, "acme2"), await site.key(Role.WORKER)]
    job_id = await site.submit(key=admin, lease=60)
    (claimed,) = await site.claim(key=acme)
    lease = {"job_id": job_id, "lease_token": claimed["lease_token"]}
    (before,) = await site.store.get([job_id])

    for thief in thieves:
        for verb, body in VERBS.items():
            fields = {**body, "lease_token": lease["lease_token"]}
            reply = await site.post(f"{API}/jobs/{job_id}/{verb}", fields, key=thief)
            if verb == "heartbeat":
                assert {"job_id": job_id, "held": False} == _told(reply)
            else:
                assert reply.status in (404, 409), (verb, reply.body)
        many = await site.post(f"{API}/workers/heartbeat", {"leases": [lease]}, key=thief)
        assert [False] == [one["held"] for one in many.json["leases"]]

    assert [before] == await site.store.get([job_id])
    assert [[]] == await site.store.logs([job_id])
    done = await site.post(f"{API}/jobs/{job_id}/complete", _only_token(lease), key=acme)
    assert 200 == done.status


def _told(reply: Reply) -> dict[str, Any]:
    """What an answer about a lease says beyond its defaults."""
    return {name: value for name, value in reply.json.items() if value or name == "held"}


def _only_token(lease: dict[str, str]) -> dict[str, str]:
    return {"lease_token": lease["lease_token"]}


@pytest.mark.req("A-20")
async def test_racing_submissions_never_exceed_the_unfinished_jobs_of_a_key(
    request: pytest.FixtureRequest, store_name: str
) -> None:
    with PLACES[store_name](request) as place:
        shared = None if place.is_shared else place.open()
        apps = [Holdfast(place.url) if shared is None else Holdfast(store=shared) for _ in "ab"]
        async with running(apps[0]) as first, running(apps[1]) as second:
            key = await first.key(Role.SUBMITTER, live_jobs=7)
            second.forget_keys()
            body = {"type": "a", "payload": 1}

            replies = await asyncio.gather(
                *(site.post(f"{API}/jobs", body, key=key) for site in (first, second) * 15)
            )
            listed = (await first.get(f"{API}/jobs", key=key)).json["total_count"]

    statuses = sorted(reply.status for reply in replies)
    assert [201] * 7 + [429] * 23 == statuses
    assert 7 == listed


@pytest.mark.req("A-20")
async def test_worker_names_of_one_namespace_neither_hide_nor_show_in_another(
    any_site: Site,
) -> None:
    site = any_site
    keys = {name: await site.key(Role.ADMIN, name) for name in ("acme", "acme2", "")}

    await site.claim(key=keys["acme"], worker_id="w", queues=["a"])
    await site.claim(key=keys[""], worker_id="acme/w", queues=["p"])
    await site.claim(key=keys["acme2"], worker_id="w", queues=["b"])
    await site.claim(key=keys["acme2"], worker_id="../acme/w", queues=["c"])
    seen = {
        name: {
            (worker["id"], *worker["queues"])
            for worker in (await site.get(f"{API}/workers", key=key)).json["workers"]
        }
        for name, key in keys.items()
    }

    assert {("w", "a")} == seen["acme"]
    assert {("w", "b"), ("../acme/w", "c")} == seen["acme2"]
    assert {("acme/w", "p")} == seen[""]


async def test_server_that_dies_blocks_the_submissions_of_a_key_for_seconds(
    any_site: Site,
) -> None:
    key = await any_site.key(Role.SUBMITTER, "acme", live_jobs=5)
    (made,) = await list_keys(any_site.store)
    await any_site.store.lock(f"quota:{made.id}", "died", HELD_FOR)

    async with asyncio.timeout(10):
        reply = await any_site.post(f"{API}/jobs", {"type": "a", "payload": 1}, key=key)

    assert 201 == reply.status


async def test_submission_that_takes_long_keeps_its_turn(any_site: Site) -> None:
    limits = any_site.service.key_limits
    caller = Caller(key_id="k", role=Role.SUBMITTER, live_jobs=5)

    async with limits.counting(caller):
        # Longer than the lock would be held: the store's own clock ends it, not one of the test.
        await asyncio.sleep(HELD_FOR.total_seconds() + 0.5)
        is_taken = await any_site.store.lock("quota:k", "other", HELD_FOR)

    assert not is_taken
    assert await any_site.store.lock("quota:k", "other", HELD_FOR)
