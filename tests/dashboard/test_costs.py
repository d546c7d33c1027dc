"""What pages and forms cost: nothing that a key may send or store holds the event loop for long.

The calls of the site fail when a request holds the loop for more than 50 ms.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import Holdfast
from holdfast.dashboard.payloads import MOST_TEXT, shown_value
from holdfast.model.job import Encoding
from holdfast.observe.redaction import Redaction
from holdfast.store import MemoryStore
from tests.conformance.hand import make
from tests.dashboard.visitor import Guest, dashboard_site, text_of

if TYPE_CHECKING:
    from tests.http.site import Site

PAYLOADS = {
    "integers": b"[" + b"1," * 130_000 + b"1]",
    "texts": b"[" + b'"a",' * 64_000 + b'"a"]',
    "secrets": b"{" + b",".join(b'"password%d":"x%d"' % (n, n) for n in range(10_000)) + b"}",
    "a text of addresses": b'"' + b"postgres://a:b@c " * 7000 + b'"',
    "a text of names": b'"' + b"password= " * 13_000 + b'"',
    "lists": b"[" + b"[]," * 85_000 + b"1]",
}


@pytest.mark.parametrize("what", PAYLOADS)
async def test_pages_and_copies_of_large_payloads_keep_the_loop_free(
    site: Site, guest: Guest, what: str
) -> None:
    made = make("large", now=site.store.now())
    job = replace(made, payload=PAYLOADS[what], encoding=Encoding.JSON)
    await site.store.add([job])

    page, form = await guest.get(f"/jobs/{job.id}"), await guest.get(f"/jobs/{job.id}/copy")
    fields = {"type": "a", "copy_of": job.id, "payload": PAYLOADS[what].decode()}
    done = await guest.post("/submit", fields)

    assert [200, 200, 303] == [page.status, form.status, done.status]


async def test_many_copies_at_once_leave_threads_for_other_pages() -> None:
    go_on = threading.Event()

    def slow(text: str) -> str:
        go_on.wait(30)
        return text

    async with dashboard_site(
        Holdfast(store=MemoryStore(), redaction=Redaction(hook=slow))
    ) as site:
        guest, payload = Guest(site), b'["' + b"x" * 3000 + b'"]'
        made = make("large", now=site.store.now())
        await site.store.add([replace(made, payload=payload, encoding=Encoding.JSON)])

        async with asyncio.TaskGroup() as group:
            copies = [group.create_task(guest.get(f"/jobs/{made.id}/copy")) for _ in range(40)]
            async with asyncio.timeout(20):
                other = await Guest(site).get("/queues")
            go_on.set()

    assert [200] * 41 == [reply.status for reply in (other, *(copy.result() for copy in copies))]


@pytest.mark.parametrize(
    "payload",
    ["[" + "1," * 60_000, "\x01" * 260_000, "9" * 262_000, "[" * 131_000 + "]" * 131_000],
    ids=["integers", "controls", "a number", "brackets"],
)
async def test_hostile_payload_of_a_form_is_refused_with_a_free_loop(
    guest: Guest, payload: str
) -> None:
    await guest.get("/new-schedule")

    for action in ("/submit", "/new-schedule/create"):
        reply = await guest.post(action, {"type": "a", "payload": payload, "back": "/jobs"})
        assert reply.status in (303, 422)


async def test_payload_of_a_form_is_bounded(site: Site, guest: Guest) -> None:
    await guest.get("/new-schedule")
    payload = "[" + "1," * 131_071 + "1]"

    reply = await guest.post("/submit", {"type": "a", "payload": payload, "back": "/jobs"})

    assert "payload may have 262144 bytes" in text_of(await guest.follow(reply))
    assert [] == (await site.get("/api/v1/jobs")).json["jobs"]


def test_only_what_is_shown_is_masked() -> None:
    read: list[int] = []

    def noted(text: str) -> str:
        read.append(len(text))
        return text

    redaction = Redaction(hook=noted)

    shown_value(msgspec.Raw(b"[" + b'"abc",' * 40_000 + b'"abc"]'), redaction)
    shown_value(msgspec.Raw(b'"' + b"x" * 200_000 + b'"'), redaction)
    shown_value(msgspec.Raw(b'"' + b"x" * 2_000_000 + b'"'), redaction)

    assert 60_000 > sum(read)


@pytest.mark.parametrize("shift", range(0, 60, 7))
def test_secret_at_the_end_of_what_is_shown_stays_hidden(shift: int) -> None:
    before = "https://u:" + "p" * 3000 + "@h/ " + "x" * (MOST_TEXT + shift)
    text = before + " postgres://user:hunter2hunter2hunter2hunter2hunter2hunter2hunter2@db " * 400

    for size in range(MOST_TEXT - 40, MOST_TEXT + 40, 5):
        shown = Redaction().beginning(text, size)
        assert size >= len(shown)
        assert "hunter" not in shown
        assert "hunter" not in Redaction().beginning(text[: size + 9000], size)


async def test_payload_of_a_schedule_is_indented_while_its_form_takes_it(
    site: Site, guest: Guest
) -> None:
    wide = functools.reduce(lambda inner, _: [inner], range(60), [[]] * 20_000)
    for name, payload in (("deep", wide), ("flat", [1, 2])):
        await site.app.schedules.create(name, "t", "0 0 * * *", payload=payload)

    deep, flat = await guest.get("/schedules/deep"), await guest.get("/schedules/flat")

    assert b"[[],[],[]," in deep.body
    assert b"[\n  1,\n  2\n]" in flat.body
    assert 300_000 > len(deep.body)
