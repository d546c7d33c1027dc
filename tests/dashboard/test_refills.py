"""A form that is refused comes back as it was sent, open, with the fault at its field."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

from holdfast.dashboard.refills import refilled
from holdfast.errors import Fault
from tests.dashboard.visitor import Guest, failed_job, text_of

if TYPE_CHECKING:
    from tests.http.site import Site

PAGE = """<!doctype html>
<details class="options"><summary>One</summary><form action="/set"><input type="hidden" name="scope"
 value="a"><input name="rate"></form></details>
<details class="options"><summary>Two</summary><form action="/set"><input type="hidden" name="scope"
 value="b"><label>Starts <input name="rate" value="5"></label>
<select name="kind"><option value="x" selected>X &amp; co</option><option>y</option></select>
<input type="checkbox" name="on" value="1" checked><textarea name="note">old &lt;</textarea>
</form></details>"""


def test_only_the_form_that_was_sent_is_filled_and_open() -> None:
    form = {"scope": ["b"], "rate": ['"many"'], "kind": ["y"], "note": ["\nnew </textarea>"]}

    page = refilled(PAGE, "/set", form=form, faults=[Fault("rate", "INVALID", "must be <whole>")])

    assert page
    first, second = page.split("<details")[1:]
    assert first.startswith(' class="options"><')
    assert second.startswith(' class="options" open>')
    assert '<input name="rate">' in first
    assert 'name="rate" value="&quot;many&quot;" aria-invalid="true" autofocus>' in second
    assert '<span class="fault">must be &lt;whole&gt;</span></label>' in second
    assert '<option value="x">X &amp; co</option><option selected>y</option>' in second
    assert '<input type="checkbox" name="on" value="1">' in second
    assert '<textarea name="note">\n\nnew &lt;/textarea&gt;</textarea>' in second


def test_fault_without_a_field_is_said_above_the_form() -> None:
    page = refilled(PAGE, "/set", form={}, faults=[Fault("queue", "INVALID", "must be shorter")])

    assert page
    assert 'role="alert">Nothing was changed: queue must be shorter.</p>' in page


def test_page_without_the_form_is_not_used() -> None:
    assert refilled(PAGE, "/other", form={}, faults=[]) is None


async def test_refused_copy_keeps_all_that_was_typed(any_site: Site) -> None:
    guest = Guest(any_site)
    job_id = await any_site.submit("report", {"a": 1})
    back = f"/jobs/{job_id}/copy"
    await guest.get(back)
    typed = {"type": "report.wide", "queue": "slow", "priority": "BULK", "delay": "2h"}
    typed |= {"payload": '{"a": "<b>",', "tags": "tenant=acme"}

    page = await guest.post("/submit", {**typed, "copy_of": job_id, "back": back})

    html = unescape(page.body.decode())
    assert 422 == page.status
    assert f'data-here="{back}"' in html
    for name in ("type", "queue", "delay"):
        assert re.search(f'name="{name}"[^>]* value="{typed[name]}"', html)
    assert '<option value="BULK" selected>Bulk</option>' in html
    assert typed["payload"] in html
    assert typed["tags"] in html
    assert (
        "is not JSON: Expecting property name enclosed in double quotes: line 1 column 13"
        in text_of(page)
    )
    assert guest.token


async def test_refused_pause_opens_its_sheet_again(site: Site, guest: Guest) -> None:
    await site.submit("email.send", queue="mail")
    await guest.get("/queues/mail")

    fields = {"reason": "the provider is down", "until": "later", "back": "/queues/mail"}
    page = await guest.post("/queues/mail/pause", fields)

    assert b'value="the provider is down"' in page.body
    assert re.search(rb"<details[^>]* open><summary[^>]*>Pause", page.body)


async def test_refused_retry_of_many_shows_its_preview_again(site: Site, guest: Guest) -> None:
    await failed_job(site)
    preview = (await guest.get("/bulk?action=retry&q=state:failed")).body.decode()
    back = re.search(r'name="back" value="([^"]*)"', preview)
    assert back

    fields = {"q": "state:failed", "delay": "soon", "back": unescape(back[1])}
    page = await guest.post("/bulk/retry", fields)

    assert 422 == page.status
    assert "must be like 30s, 15m or 2h" in text_of(page)
    assert b'value="soon"' in page.body
