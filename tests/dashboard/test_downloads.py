"""A payload that is too large for a page comes as a file, masked as the page is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dashboard import Dashboard
from holdfast.dashboard.visits import DashboardSettings
from tests.dashboard.test_access import signed_in
from tests.dashboard.visitor import Guest, dashboard_site, text_of

if TYPE_CHECKING:
    from typing import Any

    from tests.http.site import Site

LARGE = {"name": "\u202e<b>", "password": "hunter2", "lines": ["x" * 90_000] * 4, "end": 10**30}


async def test_large_payload_is_downloaded_whole_and_masked(any_site: Site) -> None:
    guest = Guest(any_site)
    job_id = await any_site.submit("report", LARGE)

    page = await guest.get(f"/jobs/{job_id}")
    file = await guest.get(f"/jobs/{job_id}/payload")

    text = file.body.decode()
    assert f'href="/jobs/{job_id}/payload" download' in page.body.decode()
    assert "the first 20,000 characters" in text_of(page)
    assert 4 == text.count("x" * 90_000)
    assert f'"end": {10**30}' in text
    assert "hunter2" not in text
    assert "text/plain; charset=utf-8" == file.headers["content-type"]
    assert f'attachment; filename="{job_id}.payload.txt"' == file.headers["content-disposition"]
    assert "nosniff" == file.headers["x-content-type-options"]


async def test_result_is_downloaded_and_absent_without_one(site: Site, guest: Guest) -> None:
    job_id = await site.submit("report")
    none = await guest.get(f"/jobs/{job_id}/result")
    (job,) = await site.claim()
    body = {"lease_token": job["lease_token"], "output": {"token": "abc", "sent": 3}}
    await site.post(f"/api/v1/jobs/{job_id}/complete", body)

    file = await guest.get(f"/jobs/{job_id}/result")

    assert 404 == none.status
    assert '"sent": 3' in file.body.decode()
    assert "abc" not in file.body.decode()


async def test_observer_downloads_no_payload(site: Site) -> None:
    job_id = await site.submit("report", {"a": 1}, key=await site.key("admin"))
    guest = await signed_in(site, "observer")

    assert 403 == (await guest.get(f"/jobs/{job_id}/payload")).status


async def test_nothing_is_downloaded_where_payloads_are_hidden() -> None:
    def hidden(service: Any) -> Dashboard:
        return Dashboard(service, settings=DashboardSettings(show_payloads=False))

    async with dashboard_site(pages=hidden) as site:
        job_id = await site.submit("report", {"a": "kept back"})
        reply = await Guest(site).get(f"/jobs/{job_id}/payload")

    assert 403 == reply.status
    assert b"kept back" not in reply.body


async def test_hook_decides_what_is_downloaded() -> None:
    def shaped(service: Any) -> Dashboard:
        settings = DashboardSettings(format_payload=lambda job: f"for {job.type}")
        return Dashboard(service, settings=settings)

    async with dashboard_site(pages=shaped) as site:
        job_id = await site.submit("report", {"a": "kept back"})
        reply = await Guest(site).get(f"/jobs/{job_id}/payload")

    assert b"for report" == reply.body
