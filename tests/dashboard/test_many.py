"""More of everything than a page can show: queues, workers, warnings; and names of full length."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast import Holdfast
from holdfast.model.reserved import WEBHOOK
from holdfast.model.workers import WorkerInfo
from holdfast.operations.workers import announce
from holdfast.store import LimitRule, RecordWrite
from tests.conformance.hand import make
from tests.dashboard.visitor import Guest, dashboard_site, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.site import Site

MOST_BYTES = 400_000


async def many_queues(site: Site, count: int) -> None:
    jobs = [{"type": "t", "payload": {}, "queue": f"tenant-{at:04}"} for at in range(count)]
    for start in range(0, count, 100):
        reply = await site.post("/api/v1/jobs/batch", {"jobs": jobs[start : start + 100]})
        assert reply.status in (200, 201), reply.body


def rows(page: bytes) -> list[str]:
    return re.findall(r'data-row data-key="([^"]*)"', page.decode())


async def test_overview_of_many_queues_stays_short(site: Site, guest: Guest) -> None:
    await many_queues(site, 1000)

    page = await guest.get("/overview")

    assert 50 == len(rows(page.body))
    assert "50 of 1 000 queues" in text_of(page)
    assert 2 == page.body.count(b'class="warning ')
    assert len(page.body) < MOST_BYTES


async def test_queues_are_listed_in_parts_and_found_by_name(site: Site, guest: Guest) -> None:
    await many_queues(site, 250)

    parts = [await guest.get(f"/queues{query}") for query in ("", "?from=100", "?from=200")]
    found = await guest.get("/queues?find=TENANT-024")
    none = await guest.get("/queues?find=nothing")
    wrong = [await guest.get(f"/queues?from={given}") for given in ("x", "-1", "9" * 30, "900")]

    assert [100, 100, 50] == [len(rows(page.body)) for page in parts]
    assert 250 == len({name for page in parts for name in rows(page.body)})
    assert "101 to 200 of 250" in text_of(parts[1])
    assert [f"tenant-{at:04}" for at in range(240, 250)] == rows(found.body)
    assert "No queue has nothing in its name" in text_of(none)
    assert {200} == {page.status for page in wrong}


@pytest.mark.parametrize("page", ["/queues", "/queues?find=9", "/overview", "/limits"])
async def test_pages_over_thousands_of_queues_keep_the_loop_free(page: str, tmp_path: Path) -> None:
    names = [f"q{number}" for number in range(12_000)]
    async with dashboard_site(Holdfast(f"sqlite:///{tmp_path}/jobs.db")) as site:
        made = make("t", now=site.store.now())
        await site.store.add([replace(made, id=f"job-{name}", queue=name) for name in names])
        for name in names[:500]:
            await site.store.limit(f"queue:{name}", LimitRule(concurrency=3))

        reply = await Guest(site).get(page)

    assert 200 == reply.status


async def test_workers_are_listed_in_parts(site: Site, guest: Guest) -> None:
    for number in range(130):
        worker = WorkerInfo(
            id=f"worker-{number:03}",
            host="a",
            pid=number,
            queues=("default",),
            types=(),
            slots=4,
            running=0,
            started_at=site.store.now(),
        )
        await announce(site.store, worker)

    first, second = await guest.get("/workers"), await guest.get("/workers?from=100")

    assert [100, 30] == [len(rows(page.body)) for page in (first, second)]
    assert "130 workers" in text_of(first)


async def test_limits_are_listed_in_parts(site: Site, guest: Guest) -> None:
    for number in range(130):
        await site.store.limit(f"queue:tenant-{number:03}", LimitRule(concurrency=3, rate=5))

    first, second = await guest.get("/limits"), await guest.get("/limits?from=100")

    assert [100, 30] == [len(rows(page.body)) for page in (first, second)]
    assert "130 limits" in text_of(first)
    assert "101 to 130 of 130" in text_of(second)


async def test_limit_names_the_first_of_many_queues(site: Site, guest: Guest) -> None:
    await site.store.limit("task:t", LimitRule(concurrency=1))
    await many_queues(site, 15)
    await site.claim(types=["t"], queues=["tenant-0000"], limit=1)

    page = text_of(await guest.get("/limits"))

    assert 10 == page.count("holds back jobs of")
    assert "and of 4 more queues" in page


async def test_webhooks_of_many_namespaces_are_listed_in_parts(site: Site, guest: Guest) -> None:
    made = await site.app.webhooks.add("https://hooks.example/in")
    (record,) = await site.store.records(WEBHOOK, [made.id])
    assert record is not None
    data = json.loads(record.data)
    writes = [
        RecordWrite(kind=WEBHOOK, key=f"x{n}", data=json.dumps({**data, "id": f"x{n}"}).encode())
        for n in range(129)
    ]
    await site.store.keep(writes)

    first, second = await guest.get("/webhooks"), await guest.get("/webhooks?from=100")

    assert [100, 30] == [len(rows(page.body)) for page in (first, second)]
    assert "101 to 130 of 130" in text_of(second)


async def test_keys_are_listed_in_parts(site: Site) -> None:
    key = await site.key("admin")
    for _ in range(110):
        await site.key("observer")
    guest = Guest(site)
    await guest.sign_in(key)

    first, second = await guest.get("/audit"), await guest.get("/audit?from=100")

    assert [100, 11] == [
        page.body.count(b"<td>admin") + page.body.count(b"<td>observer") for page in (first, second)
    ]
    assert "101 to 111 of 111" in text_of(second)


async def test_many_warnings_of_one_check_are_one_with_the_first_of_them(
    site: Site, guest: Guest
) -> None:
    await many_queues(site, 200)

    page = await guest.get("/doctor")

    assert page.body.count(b'class="panel finding') < 5
    assert "200 kinds of ready jobs have no worker that takes them." in text_of(page)
    assert "The first 5 of 200; holdfast doctor lists all" in text_of(page)
    assert "in queue 'tenant-0004'" in text_of(page)
    assert "in queue 'tenant-0005'" not in text_of(page)
