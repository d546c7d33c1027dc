"""Run a copy: the form of a job, with its secrets masked, and what is submitted from it."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from holdfast.dashboard.masking import masked, read_json, unmasked, written
from holdfast.observe.redaction import Redaction
from tests.dashboard.visitor import Guest, text_of

if TYPE_CHECKING:
    from tests.http.site import Site


async def test_copy_of_a_job_is_submitted_with_changes(any_site: Site) -> None:
    guest = Guest(any_site)
    payload = {"n": 10**30, "to": "ada"}
    job_id = await any_site.submit("report", payload, tags={"tenant": "acme"}, priority="LOW")
    form = await guest.get(f"/jobs/{job_id}/copy")

    done = await guest.post(
        "/submit",
        {
            "type": "report",
            "queue": "default",
            "priority": "HIGH",
            "payload": '{"n": 1000000000000000000000000000000, "to": "bob"}',
            "tags": "tenant=globex",
        },
    )
    made = done.headers["location"].partition("?")[0]
    copy = (await any_site.get(f"/api/v1{made}")).json
    stored = (await any_site.get(f"/api/v1{made}/payload")).json["payload"]

    assert "1000000000000000000000000000000" in text_of(form)
    assert ("HIGH", {"tenant": "globex"}) == (copy["priority"], copy["tags"])
    assert {"n": 10**30, "to": "bob"} == stored


async def test_copy_with_a_broken_payload_changes_nothing(site: Site, guest: Guest) -> None:
    job_id = await site.submit("report", {"a": 1})
    await guest.get(f"/jobs/{job_id}/copy")

    back = f"/jobs/{job_id}/copy"
    reply = await guest.post("/submit", {"type": "report", "payload": "{", "back": back})

    assert "payload is not JSON" in text_of(await guest.follow(reply))


SECRET = {"order": 7, "card": {"api_token": "tok_live_1", "pin_password": 4711}, "n": 10**30}


def shown_payload(page: bytes) -> str:
    """The payload as the form has it."""
    found = re.search(r'<textarea name="payload"[^>]*>(.*?)</textarea>', page.decode(), re.DOTALL)
    assert found
    return html.unescape(found[1])


async def test_secrets_are_masked_in_the_form_and_whole_in_the_copy(any_site: Site) -> None:
    guest = Guest(any_site)
    job_id = await any_site.submit("pay", SECRET)
    form = await guest.get(f"/jobs/{job_id}/copy")
    payload = shown_payload(form.body)

    fields = {"type": "pay", "copy_of": job_id, "payload": payload.replace("7", "8", 1)}
    done = await guest.post("/submit", fields)

    made = done.headers["location"].partition("?")[0]
    assert b"tok_live_1" not in form.body
    assert "4711" not in payload
    assert "the copy gets the value of the original" in text_of(form)
    stored = (await any_site.get(f"/api/v1{made}/payload")).json["payload"]
    assert {**SECRET, "order": 8} == stored


async def test_mask_without_its_original_changes_nothing(site: Site, guest: Guest) -> None:
    await guest.get("/new-schedule")
    fields = {"type": "pay", "copy_of": "gone", "payload": '{"token": "***"}', "back": "/jobs"}

    reply = await guest.follow(await guest.post("/submit", fields))

    assert "the job that has them is gone" in text_of(reply)
    assert [] == (await site.get("/api/v1/jobs")).json["jobs"]


async def test_no_payload_is_in_the_audit_log(site: Site, guest: Guest) -> None:
    await guest.get("/new-schedule")
    await guest.post("/submit", {"type": "pay", "payload": '{"token": "tok_live_1"}'})

    (entry,) = (await site.get("/api/v1/audit")).json["entries"]

    assert "submitJob" == entry["action"]
    assert "tok_live_1" not in entry["detail"]


def test_changed_moved_and_added_values_stay_as_they_are_given() -> None:
    redaction = Redaction()
    original = read_json('{"token": "a", "list": [{"token": "b"}], "plain": "***"}')
    shown = masked(original, redaction)
    given = read_json(
        '{"token": "new", "list": [{"token": "***"}], "plain": "***", "other": {"token": "***"}}'
    )

    restored = unmasked(given, original, shown)

    assert "new" == restored["token"]
    assert [{"token": "b"}] == restored["list"]
    assert "***" == restored["plain"] == restored["other"]["token"]


def test_numbers_are_written_as_they_were_read() -> None:
    text = '{"a": 1.10, "b": 1e400, "c": [123456789012345678901234567890, -0.0], "d": [], "e": {}}'

    assert text == re.sub(r"\s+", " ", written(read_json(text))).replace("{ ", "{").replace(
        " }", "}"
    ).replace("[ ", "[").replace(" ]", "]")
