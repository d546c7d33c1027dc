"""A job that waits for its time: run now, or due at another time, over every store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.dashboard.visitor import Guest, text_of

if TYPE_CHECKING:
    from tests.http.site import Site


async def job(site: Site, job_id: str) -> dict[str, str]:
    return (await site.get(f"/api/v1/jobs/{job_id}")).json


async def test_waiting_job_is_due_now_or_at_another_time(any_site: Site) -> None:
    guest = Guest(any_site)
    first = await any_site.submit("late", delay=3600)
    second = await any_site.submit("late", delay=3600)
    page = await guest.get(f"/jobs/{first}")

    now = await guest.follow(await guest.post(f"/jobs/{first}/run", {"back": f"/jobs/{first}"}))
    fields = {"due": "2h", "priority": "HIGH", "back": f"/jobs/{second}"}
    await guest.post(f"/jobs/{second}/update", fields)
    await any_site.store.promote(10)

    assert "Run now" in text_of(page)
    assert "The job is due now." in text_of(now)
    assert "SCHEDULED" == (await job(any_site, first))["state"]
    moved = await job(any_site, second)
    assert ("DELAYED", "HIGH") == (moved["state"], moved["priority"])
    assert moved["scheduled_for"] > (await job(any_site, first))["updated_at"]
    assert "Run now" not in text_of(await guest.get(f"/jobs/{first}"))


@pytest.mark.parametrize(
    ("due", "said"),
    [
        ("soon", "must be like 15m, 2h, 1d or 2026"),
        ("9999d", "within the job's lifetime"),
        ("", "Nothing was given"),
    ],
)
async def test_wrong_time_changes_nothing(site: Site, guest: Guest, due: str, said: str) -> None:
    job_id = await site.submit("late", delay=3600)
    before = await job(site, job_id)
    await guest.get(f"/jobs/{job_id}")

    fields = {"due": due, "back": f"/jobs/{job_id}"}
    reply = await guest.post(f"/jobs/{job_id}/update", fields)
    reply = await guest.follow(reply) if reply.status == 303 else reply

    assert said in text_of(reply)
    assert before == await job(site, job_id)


async def test_ready_job_has_no_time_to_wait_for(site: Site, guest: Guest) -> None:
    job_id = await site.submit("ready")
    await guest.get(f"/jobs/{job_id}")

    reply = await guest.follow(await guest.post(f"/jobs/{job_id}/run", {"back": f"/jobs/{job_id}"}))

    assert "does not wait for a time" in text_of(reply)
