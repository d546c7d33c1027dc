"""The jobs of schedules and children of jobs count against the unfinished jobs of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.http.api_keys import Role
from holdfast.maintenance.cron import WITHOUT_ROOM, CronService
from holdfast.operations.quarantine import quarantined
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore, Search
from tests.http.site import API, running

if TYPE_CHECKING:
    from tests.http.site import Reply, Site

EACH_SECOND = {"type": "t", "expression": "* * * * * *"}


async def _create(site: Site, key: str, name: str, **more: Any) -> Reply:
    body = {**EACH_SECOND, "name": name, **more}
    return await site.call("POST", f"{API}/schedules", body, key=key)


async def _end_one(site: Site, key: str) -> None:
    (job,) = (await site.store.find(Search(queues=("acme/default",), limit=1))).jobs
    assert 200 == (await site.post(f"{API}/jobs/{job.id}/cancel", key=key)).status


@pytest.mark.req("A-4", "A-20")
@pytest.mark.parametrize("missed", ["one", "all"])
async def test_ticks_wait_while_their_key_has_too_many_unfinished_jobs(missed: str) -> None:
    clock = ManualClock()
    async with running(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        small, free = await site.key(Role.ADMIN, "acme", live_jobs=3), await site.key(Role.ADMIN)
        for n in range(5):
            assert 201 == (await _create(site, small, f"s{n}", missed=missed)).status
        service = CronService(site.app, site.store)

        async def live_after(seconds: float) -> int:
            clock.advance(seconds)
            await service.once()
            return (await site.store.find(Search(queues=("acme/default",)))).total

        counts = [await live_after(1) for _ in range(4)]
        own = await site.post(f"{API}/jobs", {"type": "a", "payload": 1}, key=small)
        await _create(site, free, "theirs")
        await live_after(WITHOUT_ROOM.total_seconds() + 1)
        theirs = (await site.store.find(Search(queues=("default",)))).total
        await _end_one(site, small)
        with_room = await live_after(WITHOUT_ROOM.total_seconds() + 1)
        (report,) = await quarantined(site.store)

    assert [3, 3, 3, 3] == counts
    assert (429, "unfinished jobs of this key") == (own.status, own.json["error"]["limit"])
    assert theirs >= 1  # of a key without a limit
    assert 4 == with_room  # the one that ended, and three
    assert "3 unfinished jobs" in report.error


@pytest.mark.req("A-4", "A-20")
async def test_schedule_counts_for_the_key_that_changed_it_last(any_site: Site) -> None:
    site = any_site
    small, free = await site.key(Role.ADMIN, live_jobs=1), await site.key(Role.ADMIN)
    await _create(site, free, "s", expression="0 0 1 1 *")

    runs = [await site.post(f"{API}/schedules/s/run", key=key) for key in (small, small, free)]
    await site.call("PATCH", f"{API}/schedules/s", {"expression": "* * * * * *"}, key=small)
    (record,) = await site.store.records("schedule", ["s"])

    assert [202, 429, 202] == [reply.status for reply in runs]
    assert record is not None
    ids = [key.split("_")[1] for key in (small, free)]
    assert [True, False] == [id_.encode() in record.data for id_ in ids]


@pytest.mark.req("A-4", "A-20")
async def test_children_count_as_jobs_of_the_worker_that_spawns_them(any_site: Site) -> None:
    site = any_site
    await site.key(Role.ADMIN)
    worker = await site.key(Role.WORKER, live_jobs=2)
    submitter = await site.key(Role.SUBMITTER)
    await site.submit(key=submitter)
    (job,) = await site.claim(key=worker)

    async def spawn(key: str) -> Reply:
        child = {"type": "child", "payload": 1}
        body = {"lease_token": job["lease_token"], "job": child, "key": key}
        return await site.post(f"{API}/jobs/{job['job_id']}/spawn", body, key=worker)

    spawned = [await spawn(key) for key in ("a", "b", "c", "b")]

    assert [201, 201, 429, 201] == [reply.status for reply in spawned]
    assert spawned[1].json == spawned[3].json  # it exists already, and needs no room
