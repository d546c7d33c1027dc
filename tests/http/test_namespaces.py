"""Tenants on one store cannot reach each other by id, cursor, filter, event, key or metric."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast import Worker, config
from holdfast.errors import ValidationError
from holdfast.http.api_keys import Role
from holdfast.model.workers import LEADERSHIP
from holdfast.operations.workers import TERM
from holdfast.store import LimitRule
from tests.http.site import API
from tests.http.test_events import received

if TYPE_CHECKING:
    from tests.http.site import Site

_NOTHING = timedelta(0)
READS = ("", "/result", "/payload", "/wait?timeout=0.05", "/failure", "/explain", "/logs")


class Tenant:
    """A namespace and its admin key."""

    def __init__(self, site: Site, name: str, admin: str) -> None:
        self.site = site
        self.name = name
        self.admin = admin

    async def get(self, path: str) -> Any:
        return (await self.site.get(f"{API}{path}", key=self.admin)).json

    async def post(self, path: str, body: object = None) -> Any:
        return await self.site.post(f"{API}{path}", body, key=self.admin)


@pytest.fixture
async def tenants(site: Site) -> list[Tenant]:
    """Two namespaces, and the default one without a name."""
    return [Tenant(site, name, await site.key(Role.ADMIN, name)) for name in ("acme", "acme2", "")]


async def test_key_of_a_namespace_learns_that_maintenance_is_led_but_not_by_whom(
    tenants: list[Tenant],
) -> None:
    mine = tenants[0]
    app, job_id = mine.site.app, await mine.site.submit("a", 1, key=mine.admin, delay=0.001)
    await app.store.lock(LEADERSHIP, "worker-of-the-host", TERM)
    await asyncio.sleep(0.01)  # the job is due

    explained = await mine.get(f"/jobs/{job_id}/explain")

    assert explained["message"].endswith("it will be made ready shortly")
    assert "worker-of-the-host" not in str(explained)


@pytest.mark.req("A-20")
async def test_job_of_another_namespace_is_not_found(tenants: list[Tenant]) -> None:
    for mine in tenants:
        job_id = await mine.site.submit("a", 1, key=mine.admin)
        assert "default" == (await mine.get(f"/jobs/{job_id}"))["queue"]
        for other in tenants:
            if other is mine:
                continue
            for path in READS:
                assert "NOT_FOUND" == (await other.get(f"/jobs/{job_id}{path}"))["error"]["code"]
            for action in ("cancel", "retry", "release"):
                assert 404 == (await other.post(f"/jobs/{job_id}/{action}")).status
            deleted = await other.site.call("DELETE", f"{API}/jobs/{job_id}", key=other.admin)
            changed = await other.site.call(
                "PATCH", f"{API}/jobs/{job_id}", {"tags": {"a": "b"}}, key=other.admin
            )
            for action in ("cancel", "retry", "delete"):
                many = await other.post(f"/jobs/{action}", {"job_ids": [job_id]})
                assert 1 == many.json["failed"]
            child = await other.post("/jobs", {"type": "a", "payload": 1, "depends_on": [job_id]})
            assert (404, 404, 400) == (deleted.status, changed.status, child.status)
        assert "SCHEDULED" == (await mine.get(f"/jobs/{job_id}"))["state"]
        own = {"tags": {"a": "b"}, "priority": "HIGH"}
        await mine.site.call("PATCH", f"{API}/jobs/{job_id}", own, key=mine.admin)
        job = await mine.get(f"/jobs/{job_id}")
        assert ({"a": "b"}, "HIGH", "default") == (job["tags"], job["priority"], job["queue"])


@pytest.mark.req("A-20", "A-7")
async def test_searches_cursors_and_filters_stay_inside(tenants: list[Tenant]) -> None:
    acme, other, plain = tenants
    for tenant, count in ((acme, 5), (other, 3), (plain, 2)):
        for n in range(count):
            await tenant.site.submit("a", n, tags={"t": "x"}, queue="q", key=tenant.admin)

    first = await acme.get("/jobs?limit=2")
    crossed = [
        await t.get(f"/jobs?limit=1000&cursor={first['next_cursor']}") for t in (other, plain)
    ]
    foreign = [
        await other.get(f"/jobs?queues={name}") for name in ("acme/q", "acme2/q", "../acme/q")
    ]
    by_tag = [(await t.get("/jobs?tags[t]=x"))["total_count"] for t in tenants]
    cancelled = await other.post("/jobs/cancel", {"filter": {"tags": {"t": "x"}}})
    wide = await plain.post("/jobs/cancel", {"filter": {"queues": ["acme/q"]}})

    assert ["cursor", "cursor"] == [c["error"]["details"][0]["field"] for c in crossed]
    assert [0, 0, 0] == [page["total_count"] for page in foreign]
    assert [5, 3, 2] == by_tag
    assert (3, 0) == (cancelled.json["cancelled"], wide.json["cancelled"])
    assert 5 == (await acme.get("/jobs?states=SCHEDULED"))["total_count"]


@pytest.mark.req("A-20", "A-7")
async def test_cursor_is_valid_only_in_its_own_namespace(tenants: list[Tenant]) -> None:
    for tenant in tenants:
        for n in range(3):
            await tenant.site.submit("a", n, max_attempts=1, key=tenant.admin)
        for job in await tenant.site.claim(key=tenant.admin, limit=3):
            token = {"lease_token": job["lease_token"], "message": "m"}
            await tenant.post(f"/jobs/{job['job_id']}/fail", token)

    for path, rows in (("/jobs?limit=1", "jobs"), ("/failures?limit=1", "failures")):
        cursors = []
        for tenant in tenants:
            first = await tenant.get(path)
            second = await tenant.get(f"{path}&cursor={first['next_cursor']}")
            assert first[rows][0]["job_id"] != second[rows][0]["job_id"]
            cursors.append(first["next_cursor"])
        for tenant, foreign in zip(tenants, cursors[1:] + cursors[:1], strict=True):
            refused = await tenant.get(f"{path}&cursor={foreign}")
            assert "INVALID_REQUEST" == refused["error"]["code"]


@pytest.mark.req("A-20")
async def test_limit_keys_of_tenants_are_separate(tenants: list[Tenant]) -> None:
    store = tenants[0].site.store
    await store.limit("key:a", LimitRule(concurrency=1))
    for tenant in tenants:
        for _ in range(2):
            await tenant.site.submit("a", 1, limit_key="customer", key=tenant.admin)

    claimed = [await t.site.claim(key=t.admin, limit=2) for t in tenants]

    assert [1, 1, 1] == [len(jobs) for jobs in claimed]
    first = await tenants[0].get(f"/jobs/{claimed[0][0]['job_id']}")
    assert "acme" not in str(first)
    token = {"lease_token": claimed[0][0]["lease_token"]}
    assert 200 == (await tenants[0].post(f"/jobs/{claimed[0][0]['job_id']}/complete", token)).status
    assert 1 == len(await tenants[0].site.claim(key=tenants[0].admin, limit=2))


@pytest.mark.req("A-20", "A-8")
async def test_counts_queues_workers_failures_and_metrics_are_separate(
    tenants: list[Tenant],
) -> None:
    acme, other, plain = tenants
    await acme.site.submit("secret.type", 1, queue="secret-queue", max_attempts=1, key=acme.admin)
    (claimed,) = await acme.site.claim(key=acme.admin, queues=["secret-queue"])
    await acme.post(
        f"/jobs/{claimed['job_id']}/fail",
        {"lease_token": claimed["lease_token"], "message": "m", "code": "SECRET"},
    )

    for tenant in (other, plain):
        stats = await tenant.get("/stats?breakdown_by=TYPE&breakdown_by=QUEUE")
        assert (0, 0, {}, {}) == tuple(
            stats[n] for n in ("submitted", "dead_letter", "by_type", "by_queue")
        )
        assert [] == (await tenant.get("/queues"))["queues"]
        assert [] == (await tenant.get("/workers"))["workers"]
        page = await tenant.get("/failures?states=DEAD_LETTER")
        assert (0, {}) == (page["total_count"], page["by_code"])
        metrics = await tenant.site.get("/metrics", key=tenant.admin)
        assert b"secret" not in metrics.body.lower()
    assert ["secret-queue"] == [q["name"] for q in (await acme.get("/queues"))["queues"]]
    assert 1 == (await acme.get("/failures?states=DEAD_LETTER"))["total_count"]
    assert b'queue="secret-queue"' in (await acme.site.get("/metrics", key=acme.admin)).body


@pytest.mark.req("A-20")
async def test_paused_queue_stays_open_for_other_tenants(tenants: list[Tenant]) -> None:
    for tenant in tenants:
        await tenant.site.submit(key=tenant.admin)

    await tenants[0].post("/queues/default/pause")

    claimed = [await t.site.claim(key=t.admin) for t in tenants]
    assert [0, 1, 1] == [len(jobs) for jobs in claimed]


@pytest.mark.req("A-20", "M-2")
async def test_idempotency_keys_of_tenants_are_separate(tenants: list[Tenant]) -> None:
    body = {"type": "a", "payload": 1, "idempotency_key": "k"}

    first = [await t.post("/jobs", body) for t in tenants]
    again = [await t.post("/jobs", body) for t in tenants]
    conflict = [await t.post("/jobs", {**body, "payload": 2}) for t in tenants]

    assert [201] * 3 == [r.status for r in first]
    assert [r.json["job_id"] for r in first] == [r.json["existing_job_id"] for r in again]
    assert [409] * 3 == [r.status for r in conflict]


@pytest.mark.req("A-20", "S-5")
async def test_worker_claims_only_jobs_of_its_namespace(tenants: list[Tenant]) -> None:
    acme, other, plain = tenants
    job_id = await acme.site.submit(key=acme.admin)

    assert [] == await other.site.claim(key=other.admin)
    assert [] == await plain.site.claim(key=plain.admin)
    named = await plain.post("/workers/claim", {"worker_id": "w", "queues": ["acme/default"]})
    (claimed,) = await acme.site.claim(key=acme.admin)
    token = {"lease_token": claimed["lease_token"]}
    stolen = await other.post(f"/jobs/{job_id}/complete", token)

    assert ("default", 400, 404) == (claimed["queue"], named.status, stolen.status)
    assert 200 == (await acme.post(f"/jobs/{job_id}/complete", token)).status


@pytest.mark.req("A-20")
async def test_events_and_audit_entries_of_other_tenants_are_not_visible(
    tenants: list[Tenant],
) -> None:
    acme, other, plain = tenants
    cursor = (await acme.site.store.events(None, 0, _NOTHING)).cursor
    for tenant in (acme, other, plain, acme):
        await tenant.site.submit(f"of.{tenant.name or 'plain'}", key=tenant.admin)
        await tenant.post("/queues/default/pause")

    for tenant in tenants:
        path = f"/events?after={cursor}"
        events = await received(tenant.site, path, 4 if tenant is acme else 2, key=tenant.admin)
        assert {f"of.{tenant.name or 'plain'}"} == {e["type"] for e in events}
        assert {"default"} == {e["queue"] for e in events}
        entries = (await tenant.get("/audit"))["entries"]
        assert {tenant.name} == {e["namespace"] for e in entries}


@pytest.mark.req("A-20")
async def test_waiting_for_a_foreign_job_ends_at_once(tenants: list[Tenant]) -> None:
    acme, other, _ = tenants
    job_id = await acme.site.submit(key=acme.admin)

    async with asyncio.timeout(2):
        assert "error" in await other.get(f"/jobs/{job_id}/wait?timeout=30")


async def test_batch_with_dependencies_works_inside_a_namespace(tenants: list[Tenant]) -> None:
    acme = tenants[0]
    jobs = [
        {"type": "a", "payload": 1, "ref": "one"},
        {"type": "b", "payload": 1, "depends_on": ["one"]},
    ]
    (first, second) = (await acme.post("/jobs/batch", {"jobs": jobs})).json["results"]
    (claimed,) = await acme.site.claim(key=acme.admin, limit=5)
    token = {"lease_token": claimed["lease_token"]}

    await acme.post(f"/jobs/{first['job_id']}/complete", token)

    assert "SCHEDULED" == (await acme.get(f"/jobs/{second['job_id']}"))["state"]
    assert ["b"] == [job["type"] for job in await acme.site.claim(key=acme.admin)]


async def test_worker_on_the_store_serves_a_namespace_by_its_full_queue_name(
    tenants: list[Tenant],
) -> None:
    acme, site = tenants[0], tenants[0].site

    @site.app.task("greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    job_id = await site.submit("greet", {"name": "Ada"}, key=acme.admin)
    settings = config.load(flags={"worker.queues": ["acme/default"]}, environment={})
    worker = Worker(site.app, queues=cast("list[str]", settings["worker.queues"]))
    async with asyncio.timeout(10):
        await worker.run(burst=True)

    job = await acme.get(f"/jobs/{job_id}")
    assert ("COMPLETED", "hello Ada") == (job["state"], job["result"]["output"])


@pytest.mark.parametrize("queue", ["a/b/c", "/q", "a/", "../q", "a b/q"])
def test_queue_is_named_by_at_most_one_namespace(queue: str) -> None:
    with pytest.raises(ValidationError, match=r"worker\.queues"):
        config.load(flags={"worker.queues": [queue]}, environment={})
