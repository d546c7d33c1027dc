"""The screens of webhooks, audit, keys and doctor, without script, over every store."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.http.api_keys import list_keys
from holdfast.webhooks import WebhookSettings
from tests.dashboard.scene import HOSTILE, TURNED
from tests.dashboard.test_access import signed_in
from tests.dashboard.visitor import Guest, dashboard_site, text_of
from tests.webhooks.receiver import listening
from tests.worker.rig import working

if TYPE_CHECKING:
    from tests.http.site import Site

ALLOW = WebhookSettings(allow=("http", "ports", "127.0.0.0/8"), timeout=timedelta(seconds=2))
URL = "https://hooks.example.org/holdfast"


async def hooks(site: Site, key: str | None = None) -> list[dict[str, object]]:
    return (await site.get("/api/v1/webhooks", key=key)).json["webhooks"]


async def test_webhook_is_added_rotated_and_removed_and_its_secret_shown_once(
    any_site: Site,
) -> None:
    guest, back = Guest(any_site), {"back": "/webhooks"}
    empty = text_of(await guest.get("/webhooks"))

    form = {"url": URL, "types": "email.send, email.bounce", "states": ["FAILED"], **back}
    added = await guest.follow(await guest.post("/webhooks/add", form))
    (made,) = await hooks(any_site)
    again = await guest.get("/webhooks")
    rotated = await guest.follow(await guest.post(f"/webhooks/{made['id']}/rotate", back))
    removed = await guest.follow(await guest.post(f"/webhooks/{made['id']}/remove", back))

    assert "No webhooks" in empty
    assert "whsec_" in text_of(added)
    assert "failed of email.send, email.bounce" in text_of(added)
    assert "whsec_" not in text_of(again)
    assert "whsec_" in text_of(rotated)
    assert "The webhook is removed." in text_of(removed)
    assert [] == await hooks(any_site)


async def test_webhook_is_disabled_and_enabled_again(any_site: Site) -> None:
    guest, back = Guest(any_site), {"back": "/webhooks"}
    await guest.get("/webhooks")
    await guest.post("/webhooks/add", {"url": URL, **back})
    (made,) = await hooks(any_site)
    switch = f"/webhooks/{made['id']}/switch"

    disabled = await guest.follow(await guest.post(switch, back))
    (off,) = await hooks(any_site)
    enabled = await guest.follow(await guest.post(switch, {"enabled": "1", **back}))
    (on,) = await hooks(any_site)
    unknown = await guest.follow(await guest.post("/webhooks/none/switch", back))

    assert "Disabled" in text_of(disabled)
    assert "receives messages again" in text_of(enabled)
    assert (False, True) == (off["enabled"], on["enabled"])
    assert "there is no webhook none" in text_of(unknown)


@pytest.mark.parametrize("url", ["", "ftp://example.org", "https://127.0.0.1/"])
async def test_wrong_address_adds_nothing(site: Site, guest: Guest, url: str) -> None:
    await guest.get("/webhooks")

    reply = await guest.post("/webhooks/add", {"url": url, "back": "/webhooks"})

    assert 422 == reply.status
    assert b'aria-invalid="true"' in reply.body
    assert [] == await hooks(site)


async def test_deliveries_are_listed_and_sent_again() -> None:
    app = Holdfast("memory://", webhooks=ALLOW)

    @app.task("t")
    async def t() -> None: ...

    async with listening() as receiver, working(app), dashboard_site(app) as site:
        guest = Guest(site)
        made = (await site.post("/api/v1/webhooks", {"url": receiver.url})).json
        job_id = await site.submit("t", {})
        await receiver.wait_for()
        (sent,) = (await site.get("/api/v1/deliveries")).json["deliveries"]
        await app.wait(sent["id"], timeout=15)

        page = text_of(await guest.get(f"/webhooks?webhook={made['id']}"))
        reply = await guest.post(f"/deliveries/{sent['id']}/resend", {"back": "/webhooks"})
        after = text_of(await guest.follow(reply))
        calls = await receiver.wait_for(2)

    assert job_id in page
    assert receiver.url in page
    assert "The message is sent again." in after
    assert calls[0].body == calls[1].body


async def test_observer_adds_no_webhook_and_sees_no_audit(site: Site) -> None:
    await site.key("admin")
    guest = await signed_in(site, "observer")

    page, audit = await guest.get("/webhooks"), await guest.get("/audit")

    assert 200 == page.status
    assert b"/webhooks/add" not in page.body
    assert b'href="/audit"' not in page.body
    assert 403 == audit.status


async def test_audit_shows_who_changed_what_and_the_keys_without_secrets(site: Site) -> None:
    admin = await site.key("admin")
    await site.post("/api/v1/queues/mail/pause", {"reason": "storm"}, key=admin)
    guest = await signed_in(site, "admin")

    page = await guest.get("/audit")

    text = text_of(page)
    assert "Paused a queue" in text
    assert "storm" in text
    assert "admin" in text
    digests = [key.digest for key in await list_keys(site.store)]
    assert digests
    assert not any(digest in page.body.decode() for digest in digests)


async def test_administrator_of_a_namespace_sees_its_own_keys_and_changes(site: Site) -> None:
    whole = await site.key("admin")
    await site.key("operator", "whole")
    await site.post("/api/v1/queues/theirs/pause", {}, key=whole)
    guest = await signed_in(site, "admin", "acme")

    text = text_of(await guest.get("/audit"))
    doctor = text_of(await guest.get("/doctor"))

    assert "theirs" not in text
    assert "admin acme" in text
    assert "operator whole" not in text
    assert "The doctor examines the whole store." in doctor


async def test_doctor_shows_findings_with_advice(any_site: Site) -> None:
    await any_site.submit("email.send", queue="mail")
    await any_site.post("/api/v1/queues/mail/pause", {})

    text = text_of(await Guest(any_site).get("/doctor"))

    assert "Queue 'mail' is paused with 1 ready job." in text
    assert "holdfast queues resume mail" in text
    assert "checks are fine" in text


async def test_hostile_words_of_a_caller_show_as_text(site: Site, guest: Guest) -> None:
    await site.submit("email.send", queue="mail")
    await site.post("/api/v1/queues/mail/pause", {"reason": f"{HOSTILE}{TURNED}"})
    await site.post("/api/v1/webhooks", {"url": URL, "description": HOSTILE})

    for path in ("/queues", "/queues/mail", "/audit", "/webhooks"):
        page = (await guest.get(path)).body.decode()
        assert "<img" not in page
        assert "\u202e" not in page
        assert "&lt;img" in page or "\\u003cimg" in page
