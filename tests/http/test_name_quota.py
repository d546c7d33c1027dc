"""Names of queues, types and tags of a namespace are limited; known names remain in use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast
from holdfast.http.api_keys import Role
from holdfast.model.policy import ServiceLimits
from holdfast.model.reserved import NAMES
from holdfast.model.submission import Submission
from holdfast.store import MemoryStore, RecordWrite
from holdfast.store.tenants import TenantStore
from tests.http.site import API, running

if TYPE_CHECKING:
    from holdfast.store import Record, Store
    from tests.http.site import Reply, Site

JOBS = f"{API}/jobs"
FEW = ServiceLimits(queues_per_namespace=2, types_per_namespace=2, tags_per_namespace=2)


async def _post(site: Site, key: str, **fields: Any) -> Reply:
    body = {"type": "a", "payload": None, "queue": "q", **fields}
    return await site.post(JOBS, body, key=key)


async def _queues(store: Store, namespace: str) -> set[str]:
    return {queue.name for queue in await store.queues(namespace)}


async def test_names_beyond_the_quota_are_refused_and_known_ones_remain_in_use(
    any_site: Site,
) -> None:
    async with running(Holdfast(store=any_site.store), capacity=FEW) as site:
        key, other = await site.key(Role.ADMIN, "acme"), await site.key(Role.ADMIN, "other")
        accepted = [
            await _post(site, key, queue="q1", type="t1", tags={"k1": "x"}),
            await _post(site, key, queue="q2", type="t2", tags={"k2": "x"}),
        ]
        refused = [
            await _post(site, key, queue="q3", type="t1"),
            await _post(site, key, queue="q1", type="t3"),
            await _post(site, key, queue="q1", type="t1", tags={"k1": "x", "k3": "x"}),
        ]
        known = await _post(site, key, queue="q2", type="t1", tags={"k1": "y", "k2": "y"})
        plain = await _post(site, key, queue="q1", type="t2")
        elsewhere = await _post(site, other, queue="q3", type="t3", tags={"k3": "x"})
        stored = await _queues(site.store, "acme")

    assert [201] * 5 == [each.status for each in (*accepted, known, plain, elsewhere)]
    assert [(429, "QUOTA_EXCEEDED", 2, 2)] * 3 == [
        (
            each.status,
            each.code,
            each.json["error"]["current"],
            each.json["error"]["maximum"],
        )
        for each in refused
    ]
    assert ["queues", "types", "tags"] == [
        limit.partition("service.")[2].partition("_per")[0]
        for limit in (each.json["error"]["limit"] for each in refused)
    ]
    assert all("retry-after" not in each.headers for each in refused)
    assert {"acme/q1", "acme/q2"} == stored


async def test_every_way_to_a_new_name_counts(any_site: Site) -> None:
    async with running(Holdfast(store=any_site.store), capacity=FEW) as site:
        key = await site.key(Role.ADMIN, "acme")
        for n in (1, 2):
            await _post(site, key, queue=f"q{n}", type=f"t{n}", tags={f"k{n}": "x"})
        (held,) = await site.claim(key=key, queues=["q1"])
        job = f"{JOBS}/{held['job_id']}"
        token = {"lease_token": held["lease_token"]}
        child = {"type": "t1", "payload": None, "queue": "q3"}
        replies = {
            "batch": await site.post(
                f"{JOBS}/batch", {"jobs": [{**child, "queue": "q1"}, child]}, key=key
            ),
            "spawn": await site.post(f"{job}/spawn", {**token, "job": child}, key=key),
            "pause": await site.post(f"{API}/queues/q3/pause", {}, key=key),
            "resume": await site.post(f"{API}/queues/q3/resume", {}, key=key),
            "ageing": await site.post(f"{API}/queues/q3/ageing", {"interval": "PT1M"}, key=key),
            "update": await site.call("PATCH", job, {"tags": {"k3": "x"}}, key=key),
            "limit": await site.post(f"{API}/limits/queue%3Aq3", {"rate": 1}, key=key),
        }
        spawned = await site.post(
            f"{job}/spawn", {**token, "job": {**child, "queue": "q2"}}, key=key
        )
        paused = await site.post(f"{API}/queues/q2/pause", {}, key=key)
        queues = await site.store.queues("acme")

    assert dict.fromkeys(replies, 429) == {name: r.status for name, r in replies.items()}
    assert (201, 200) == (spawned.status, paused.status)
    assert {"acme/q1", "acme/q2"} == {queue.name for queue in queues}
    assert 3 == sum(sum(queue.counts.values()) for queue in queues)


async def test_names_of_trusted_producers_count_and_are_known(any_site: Site) -> None:
    app = Holdfast(store=any_site.store)
    async with running(app, capacity=FEW) as site:
        key = await site.key(Role.ADMIN, "acme")
        for n in range(3):
            beside = app.over(TenantStore(site.store, "acme"))
            await beside.submit(Submission(type=f"t{n}", payload=None, queue=f"q{n}"))

        known = await _post(site, key, queue="q2", type="t2")
        refused = await _post(site, key, queue="q3", type="t2")

    assert (201, 429) == (known.status, refused.status)
    assert 3 == refused.json["error"]["current"]


async def test_quota_is_exact_when_servers_and_requests_race(any_site: Site) -> None:
    limits = ServiceLimits(queues_per_namespace=5)
    store = any_site.store
    async with (
        running(Holdfast(store=store), capacity=limits) as one,
        running(Holdfast(store=store), capacity=limits) as two,
    ):
        key = await one.key(Role.ADMIN, "acme")
        two.forget_keys()
        replies = await asyncio.gather(
            *(_post(site, key, queue=f"q{n}") for n in range(12) for site in (one, two))
        )
        stored = await _queues(store, "acme")

    assert {201: 10, 429: 14} == {
        status: sum(r.status == status for r in replies) for status in (201, 429)
    }
    assert 5 == len(stored)


class CountingStore(MemoryStore):
    """Counts what new names cost."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def records(self, kind: str, keys: Any) -> list[Record | None]:
        self.reads += kind.startswith(NAMES + "@")
        return await super().records(kind, keys)

    async def queues(self, namespace: str | None = None) -> Any:
        self.reads += 1
        return await super().queues(namespace)


async def test_known_names_cost_nothing_and_refusals_read_no_list_again() -> None:
    store = CountingStore()
    async with running(Holdfast(store=store), capacity=FEW) as site:
        key = await site.key(Role.ADMIN, "acme")
        for n in (1, 2):
            await _post(site, key, queue=f"q{n}")
        first = store.reads
        for _ in range(10):
            await _post(site, key, queue="q2")
            await _post(site, key, queue="q1", tags={})
        known = store.reads - first
        for n in range(10):
            assert 429 == (await _post(site, key, queue=f"x{n}")).status

    assert 0 == known
    assert 11 >= store.reads - first


async def test_record_that_cannot_be_read_is_written_again() -> None:
    store = MemoryStore()
    async with running(Holdfast(store=store), capacity=FEW) as site:
        key = await site.key(Role.ADMIN, "acme")
        damaged = RecordWrite(kind=f"{NAMES}@acme", key="all", data=b"[1")
        await store.keep([damaged])

        statuses = [(await _post(site, key, queue=f"q{n}")).status for n in range(3)]

    assert [201, 201, 429] == statuses


async def test_jobs_of_no_namespace_have_no_quota_of_names() -> None:
    async with running(capacity=FEW) as site:
        statuses = [(await site.post(JOBS, {"type": f"t{n}", "payload": 1})).status for n in "abc"]

    assert [201] * 3 == statuses
