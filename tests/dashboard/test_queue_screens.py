"""The screens of queues, without script, over every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.test_access import signed_in
from tests.dashboard.visitor import Guest, text_of

if TYPE_CHECKING:
    from tests.http.site import Site


async def queue_info(site: Site, name: str) -> dict[str, Any]:
    queues = (await site.get("/api/v1/queues")).json["queues"]
    return next(queue for queue in queues if queue["name"] == name)


async def test_list_teaches_what_a_queue_is_while_there_is_none(any_site: Site) -> None:
    page = await Guest(any_site).get("/queues")

    assert "No queues yet" in text_of(page)


async def test_queue_without_a_worker_comes_first(any_site: Site) -> None:
    await any_site.claim(queues=["a", "served"])
    await any_site.submit("idle", queue="a", delay=3600)
    await any_site.submit("stuck.job", queue="z")

    text = text_of(await Guest(any_site).get("/queues"))

    assert "1 with ready jobs and no worker" in text
    assert text.index("no worker serves this queue") < text.index(" a ")


async def test_queue_shows_its_types_workers_and_limits(any_site: Site) -> None:
    for _ in range(3):
        await any_site.submit("email.send", queue="mail")
    await any_site.submit("email.bounce", queue="mail")
    await any_site.post("/api/v1/limits/queue:mail", {"rate": 5, "per": "PT1M"})
    await any_site.claim(queues=["mail"], types=["other"])

    text = text_of(await Guest(any_site).get("/queues/mail"))

    assert "4 ready to run" in text
    assert "email.send 3" in text
    assert "email.bounce 1" in text
    assert "1 worker" in text
    assert "queue:mail 5 per min, 0 of 1 at once used" in text


async def test_ended_jobs_are_in_the_plots_of_the_week(any_site: Site) -> None:
    job_id = await any_site.submit("email.send", queue="mail")
    (job,) = await any_site.claim(queues=["mail"])
    done = await any_site.post(
        f"/api/v1/jobs/{job_id}/complete", {"lease_token": job["lease_token"]}
    )
    assert 200 == done.status

    body = (await Guest(any_site).get("/queues/mail")).body.decode()

    assert "1 completed, 0 failed" in body
    assert "p50" in body


async def test_queue_is_paused_for_a_while_with_a_reason_and_resumed(any_site: Site) -> None:
    guest = Guest(any_site)
    await any_site.submit("email.send", queue="mail")
    await guest.get("/queues/mail")

    fields = {"reason": "the provider is down", "until": "2h", "back": "/queues/mail"}
    paused = text_of(await guest.follow(await guest.post("/queues/mail/pause", fields)))
    info = await queue_info(any_site, "mail")
    resumed = text_of(
        await guest.follow(await guest.post("/queues/mail/resume", {"back": "/queues/mail"}))
    )

    assert "by anyone on this machine: the provider is down. It resumes in 1 h" in paused
    assert info["pause"]["until"] is not None
    assert "Queue mail runs again." in resumed
    assert not (await queue_info(any_site, "mail"))["paused"]


async def test_ageing_is_set_and_turned_off(any_site: Site) -> None:
    guest = Guest(any_site)
    await any_site.submit("email.send", queue="mail")
    await guest.get("/queues/mail")

    fields = {"interval": "10m", "back": "/queues/mail"}
    on = text_of(await guest.follow(await guest.post("/queues/mail/ageing", fields)))
    off = text_of(
        await guest.follow(await guest.post("/queues/mail/ageing", {"back": "/queues/mail"}))
    )

    assert "Ageing up by one priority every 10 min" in on
    assert "Ageing off" in off


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("pause", {"until": "soon"}, "must be like 30m, 2h, 1d"),
        ("pause", {"until": "2001-01-01T00:00:00Z"}, "must be after now"),
        ("ageing", {"interval": "0"}, "must be like 30s"),
        ("ageing", {"interval": "often"}, "must be like 30s"),
    ],
)
async def test_wrong_input_changes_nothing_and_says_why(
    site: Site, guest: Guest, path: str, fields: dict[str, str], message: str
) -> None:
    await site.submit("email.send", queue="mail")
    await guest.get("/queues/mail")

    reply = await guest.post(f"/queues/mail/{path}", {**fields, "back": "/queues/mail"})

    assert 422 == reply.status
    assert message in text_of(reply)
    info = await queue_info(site, "mail")
    assert (False, None) == (info["paused"], info["ageing"])


async def test_unknown_queue_is_not_found(guest: Guest) -> None:
    reply = await guest.get("/queues/nothing")

    assert 404 == reply.status
    assert "There is no queue nothing." in text_of(reply)


async def test_observer_sees_queues_without_buttons(site: Site) -> None:
    await site.submit("email.send", queue="mail", key=await site.key("admin"))
    guest = await signed_in(site, "observer")

    pages = [await guest.get("/queues"), await guest.get("/queues/mail")]

    assert [200, 200] == [page.status for page in pages]
    assert not any(b"/queues/mail/" in page.body for page in pages)


async def test_key_of_a_namespace_sees_and_pauses_its_own_queue(site: Site) -> None:
    await site.submit("their.job", queue="mail", key=await site.key("admin"))
    await site.submit("our.job", queue="mail", key=await site.key("admin", "acme"))
    guest = await signed_in(site, "operator", "acme")

    page = text_of(await guest.get("/queues/mail"))
    await guest.post("/queues/mail/pause", {"reason": "ours"})

    assert "our.job" in page
    assert "their.job" not in page
    queues = (await site.get("/api/v1/queues", key=await site.key("admin"))).json["queues"]
    assert {"mail": False} == {q["name"]: q["paused"] for q in queues if q["name"] == "mail"}
