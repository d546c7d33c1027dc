"""Actions on many jobs: nothing ticked is nothing, and what destroys asks first."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

from holdfast import Holdfast
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore
from tests.dashboard.visitor import Guest, dashboard_site, failed_job, text_of

if TYPE_CHECKING:
    from tests.http.site import Site


async def test_nothing_ticked_means_no_job(site: Site, guest: Guest) -> None:
    job_id = await failed_job(site)
    await guest.get(f"/jobs/{job_id}")
    page = await guest.get("/jobs?q=state:failed")

    hidden = re.findall(r'<input type="hidden" name="from" value="([^"]*)">', page.body.decode())
    preview = await guest.get(f"/bulk?action=delete&from={hidden[0]}")
    done = await guest.follow(await guest.post("/bulk/delete", {"back": "/jobs"}))

    assert "Nothing is selected" in text_of(preview)
    assert b'action="/bulk/delete"' not in preview.body
    assert b'href="/jobs?q=state%3Afailed"' in preview.body
    assert "Nothing was changed: no job is selected." in text_of(done)
    assert 1 == (await site.app.count()).total


async def test_all_jobs_are_meant_only_when_asked_for(site: Site, guest: Guest) -> None:
    await failed_job(site)

    unclear = await guest.get("/bulk?action=retry&q=")
    everything = await guest.get("/bulk?action=retry&all=1")

    assert "Nothing is selected" in text_of(unclear)
    assert "Retry 1 job?" in text_of(everything)


async def test_all_matching_binds_the_instant_of_the_list(any_site: Site) -> None:
    guest = Guest(any_site)
    for _ in range(51):
        await any_site.submit("report", delay=3600)
    page = unescape((await guest.get("/jobs?q=type:report")).body.decode())
    link = re.search(r'href="(/bulk\?action=cancel[^"]*)"', page)
    assert link
    await any_site.submit("report", delay=3600)

    preview = (await guest.get(link[1])).body.decode()

    as_of = re.search(r'name="as_of" value="([^"]*)"', preview)
    assert as_of
    assert f"as_of={as_of[1].replace(':', '%3A')}" in link[1]


async def test_all_matching_is_offered_where_the_count_is_not_exact(site: Site) -> None:
    guest = Guest(site)
    for _ in range(51):
        await failed_job(site)

    page = await guest.get("/jobs?q=code:MAILBOX_UNKNOWN")

    assert "50 of 50+" in text_of(page)
    assert "All 50+ matching" in text_of(page)


async def test_focus_is_not_on_what_destroys(site: Site, guest: Guest) -> None:
    await failed_job(site)
    await site.submit("report", delay=3600)

    pages = {
        action: (await guest.get(f"/bulk?action={action}&all=1")).body
        for action in ("retry", "cancel", "delete")
    }

    assert {"retry": True, "cancel": False, "delete": False} == {
        action: b"autofocus" in body for action, body in pages.items()
    }


async def test_failure_offers_to_retry_only_those_of_the_window() -> None:
    clock = ManualClock()
    async with dashboard_site(Holdfast(store=MemoryStore(clock), clock=clock)) as site:
        guest = Guest(site)
        old = await failed_job(site)
        clock.advance(7200)
        new = await failed_job(site)
        group = (await site.get("/api/v1/failures/groups")).json["groups"][0]["group"]

        page = await guest.get(f"/failures/{group}")
        links = re.findall(r'href="(/bulk[^"]*)"[^>]*>(Retry[^<]*)', unescape(page.body.decode()))
        preview = await guest.get(links[0][0])

    assert ["Retry the 1 of this time…", "Retry all 2 jobs…"] == [words for _, words in links]
    assert f"/jobs/{new}" in preview.body.decode()
    assert f"/jobs/{old}" not in preview.body.decode()
    assert f'href="/failures/{group}">Back' in preview.body.decode()


async def test_deleting_more_than_a_thousand_needs_a_ticked_box(site: Site, guest: Guest) -> None:
    for _ in range(11):
        jobs = [{"type": "t", "payload": {}, "delay": 3600} for _ in range(100)]
        await site.post("/api/v1/jobs/batch", {"jobs": jobs})
    cancelled = await site.app.bulk.start("cancel", filter={})
    site.service.bulk.wake()
    await site.app.bulk.wait(cancelled.id)

    preview = await guest.get("/bulk?action=delete&all=1")
    refused = await guest.follow(await guest.post("/bulk/delete", {"q": "", "back": "/jobs"}))

    assert "Delete all 1 100 jobs" in text_of(preview)
    assert b'name="confirmed" value="1" required' in preview.body
    assert "tick the box to delete more than 1000 jobs" in text_of(refused)
    assert 1100 == (await site.app.count()).total
