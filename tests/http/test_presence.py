"""Workers over HTTP that are present are limited per namespace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast
from holdfast.http.api_keys import Role
from holdfast.model.policy import ServiceLimits
from holdfast.model.workers import WorkerInfo
from holdfast.operations.workers import announce
from holdfast.store import MemoryStore
from holdfast.store.tenants import TenantStore
from tests.http.site import API, running

if TYPE_CHECKING:
    from holdfast.store import NamedLock
    from tests.http.site import Reply, Site

FEW = ServiceLimits(workers_per_namespace=2)


async def _claim(site: Site, key: str, worker: str) -> Reply:
    body = {"worker_id": worker, "queues": ["q"]}
    return await site.post(f"{API}/workers/claim", body, key=key)


async def test_workers_beyond_the_quota_are_refused_and_present_ones_go_on(any_site: Site) -> None:
    store = any_site.store
    async with (
        running(Holdfast(store=store), capacity=FEW) as one,
        running(Holdfast(store=store), capacity=FEW) as two,
    ):
        key, other = await one.key(Role.ADMIN, "acme"), await one.key(Role.ADMIN, "other")
        two.forget_keys()
        replies = [await _claim(one, key, name) for name in ("w1", "w2", "w3", "w1")]
        beside = [await _claim(two, key, name) for name in ("w3", "w2")]
        elsewhere = await _claim(two, other, "w3")
        listed = (await two.get(f"{API}/workers", key=key)).json["workers"]

    assert [200, 200, 429, 200] == [reply.status for reply in replies]
    assert [429, 200] == [reply.status for reply in beside]
    assert 200 == elsewhere.status
    error = replies[2].json["error"]
    assert "workers of this namespace (service.workers_per_namespace)" == error["limit"]
    assert (2, 2, "45") == (error["current"], error["maximum"], replies[2].headers["retry-after"])
    assert ["w1", "w2"] == sorted(worker["id"] for worker in listed)


async def test_racing_workers_of_one_server_never_exceed_the_quota() -> None:
    async with running(capacity=FEW) as site:
        key = await site.key(Role.WORKER, "acme")
        replies = await asyncio.gather(*(_claim(site, key, f"w{n}") for n in range(20)))

    assert 2 == sum(reply.status == 200 for reply in replies)


class RecordingStore(MemoryStore):
    """Records the prefixes of locks that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.prefixes: list[str] = []

    async def locks(self, prefix: str) -> list[NamedLock]:
        self.prefixes.append(prefix)
        return await super().locks(prefix)


async def test_list_of_workers_reads_those_of_the_namespace_and_local_ones() -> None:
    store: Any = RecordingStore()
    async with running(Holdfast(store=store)) as site:
        key = await site.key(Role.ADMIN, "acme")
        await _claim(site, key, "w1")
        store.prefixes.clear()

        listed = (await site.get(f"{API}/workers", key=key)).json["workers"]

    assert ["w1"] == [worker["id"] for worker in listed]
    assert ["worker:", "worker/acme:"] == store.prefixes


async def test_list_of_workers_with_many_names_keeps_the_loop_free(site: Site) -> None:
    key = await site.key("admin", "acme")
    names = tuple(f"{n:0120}" for n in range(250))
    view = TenantStore(site.store, "acme")
    for n in range(400):
        info = WorkerInfo(
            id=f"w{n}",
            queues=names,
            types=names,
            started_at=site.store.now(),
            host="h",
            pid=1,
            slots=1,
            running=0,
        )
        await announce(view, info)

    reply = await site.get(f"{API}/workers", key=key)

    assert (200, 400) == (reply.status, len(reply.json["workers"]))


async def test_queues_of_workers_with_many_names_keep_the_loop_free(site: Site) -> None:
    names = tuple(f"{n:0100}" for n in range(500))
    for start in range(0, 500, 100):
        jobs = [{"type": "t", "payload": 1, "queue": name} for name in names[start : start + 100]]
        await site.post(f"{API}/jobs/batch", {"jobs": jobs})
    for n in range(300):
        info = WorkerInfo(
            id=f"w{n}",
            queues=names,
            types=(),
            started_at=site.store.now(),
            host="h",
            pid=1,
            slots=2,
            running=0,
        )
        await announce(site.store, info)

    reply = await site.get(f"{API}/queues")

    assert 500 == len(reply.json["queues"])
    assert {(300, 600)} == {
        (queue["activity"]["workers"], queue["activity"]["slots"]) for queue in reply.json["queues"]
    }
