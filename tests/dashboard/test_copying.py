"""Run a copy: the form of a job, with its secrets masked, and what is submitted from it."""

from __future__ import annotations

import functools
import html
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from holdfast.dashboard.masking import compact, masked, read_form_json, read_json, written
from holdfast.dashboard.restoring import restored
from holdfast.errors import ValidationError
from holdfast.model.job import Encoding
from holdfast.observe.redaction import Redaction
from tests.conformance.hand import make
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

    assert 422 == reply.status
    assert "is not JSON" in text_of(reply)


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


ACCOUNTS = """{
  "accounts": [{"u": "a", "password": "s1"}, {"u": "b", "password": "s2"}],
  "dsn": "postgres://u:hunter2@db1/x", "password": "top", "pin_password": 47,
  "plain": "***", "names": ["one", "two"]
}"""


def change(given: str, original: str = ACCOUNTS) -> Any:
    """Return what a changed form submits; ``given`` changes ``form``."""
    decoded = read_form_json(original)
    shown = masked(decoded, Redaction())
    form = json.loads(compact(shown))
    exec(given, {"form": form})  # the lines below
    return json.loads(compact(restored(read_form_json(json.dumps(form)), decoded, shown)))


@pytest.mark.parametrize(
    "given",
    [
        "",
        "form['password'] = 'new'",
        "form['names'] = ['***'.strip('*'), 'three']",
        "form['accounts'][1]['u'] = 'c'",
        "form['accounts'].append({'u': 'd', 'password': 'x'}); form['accounts'].pop()",
        "form['accounts'] = []",
        "del form['dsn']",
        "form['dsn'] = 'postgres://u:other@db2/x'",
        "form['copied'] = [form['plain'].replace('*', 'x')]",
    ],
)
def test_masks_that_kept_their_place_get_their_values(given: str) -> None:
    secret = json.loads(ACCOUNTS)
    exec(given, {"form": secret})  # the lines above

    assert secret == change(given)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("form['accounts'].pop(0)", "payload.accounts[0].password"),
        ("form['accounts'].reverse()", "payload.accounts[0].password"),
        ("form['accounts'][0] = form['accounts'][1]", "payload.accounts[0].password"),
        ("form['accounts'].append({'password': 'x'})", "payload.accounts[1].password"),
        ("form['dsn'] = form['dsn'].replace('db1', 'db2')", "payload.dsn"),
        ("form['token'] = form.pop('password')", "payload.token"),
        ("form['deep'] = {'list': [form['dsn']]}", "payload.deep.list[0]"),
        ("form['password'] = 'x*** '", "payload.password"),
    ],
)
def test_mask_whose_meaning_is_uncertain_is_refused_with_its_place(given: str, place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        change(given)

    faults = {fault.field: fault.message for fault in caught.value.faults}
    assert "still has ***: type the value or remove it" == faults[place]


def test_items_that_look_alike_are_not_mistaken_for_each_other() -> None:
    alike = '[{"password": "s1"}, {"password": "s2"}, {"password": "s2"}]'

    assert json.loads(alike) == change("pass", alike)
    with pytest.raises(ValidationError):
        change("form[:] = [form[0], {'password': 'x'}, form[2]]", alike)


def test_masks_of_a_hook_are_refused_like_others() -> None:
    redaction = Redaction(hook=lambda text: text.replace("4711", "[card]"))
    original = read_form_json('{"a": "card 4711", "b": ["x"]}')
    shown = masked(original, redaction)
    moved = read_form_json('{"b": ["x", "card [card]"]}')

    with pytest.raises(ValidationError, match=r"payload.b\[1\] still has a masked value"):
        restored(moved, original, shown)


async def test_form_with_an_uncertain_mask_submits_nothing(site: Site, guest: Guest) -> None:
    job_id = await site.submit("pay", {"cards": [{"pin_password": 1}, {"pin_password": 2}]})
    await guest.get(f"/jobs/{job_id}/copy")
    fields = {"type": "pay", "copy_of": job_id, "payload": '{"cards": [{"pin_password": "***"}]}'}

    reply = await guest.follow(await guest.post("/submit", {**fields, "back": "/jobs"}))

    assert "payload.cards[0].pin_password still has ***: type the value or rem" in text_of(reply)
    assert 1 == len((await site.get("/api/v1/jobs")).json["jobs"])


@pytest.mark.parametrize("depth", [65, 450, 900])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
async def test_deep_payload_is_shown_but_not_copied(
    site: Site, guest: Guest, depth: int, opening: str
) -> None:
    closing = "]" if opening == "[" else "}"
    payload = opening * depth + "1" + closing * depth
    made = make("deep", now=site.store.now())
    foreign = replace(made, payload=payload.encode(), encoding=Encoding.JSON)
    await site.store.add([foreign])
    job_id, shallow = foreign.id, await site.submit()

    page, form = await guest.get(f"/jobs/{job_id}"), await guest.get(f"/jobs/{job_id}/copy")
    await guest.get(f"/jobs/{shallow}/copy")
    fields = {"type": "a", "payload": payload, "back": "/jobs"}
    sent = [await guest.post("/submit", {**fields, "copy_of": source}) for source in ("", shallow)]

    assert 200 == page.status
    assert 400 == form.status
    assert "nested more than 64 levels deep" in text_of(form)
    for each in sent:
        assert "payload is nested more than 64 levels" in text_of(await guest.follow(each))


async def test_payload_at_the_limits_is_copied(site: Site, guest: Guest) -> None:
    payload = ["\N{OLD ITALIC LETTER A}" * 3, *([[]] * 80_000)]
    deep = functools.reduce(lambda inner, _: [inner], range(63), payload[:1])
    for given in (payload, deep):
        raw = b'{"type": "a", "payload": %s}' % json.dumps(given, separators=(",", ":")).encode()
        job_id = (await site.call("POST", "/api/v1/jobs", raw=raw)).json["job_id"]
        form = shown_payload((await guest.get(f"/jobs/{job_id}/copy")).body)

        sent = form.replace("\n", "\r\n")
        done = await guest.post("/submit", {"type": "a", "payload": sent, "copy_of": job_id})

        made = done.headers["location"].partition("?")[0]
        assert given == (await site.get(f"/api/v1{made}/payload")).json["payload"]


def test_numbers_are_written_as_they_were_read() -> None:
    text = '{"a": 1.10, "b": 1e400, "c": [123456789012345678901234567890, -0.0], "d": [], "e": {}}'

    assert text == re.sub(r"\s+", " ", written(read_json(text))).replace("{ ", "{").replace(
        " }", "}"
    ).replace("[ ", "[").replace(" ]", "]")
