"""What a form may cost: its size is judged before it is read, and its caller before that."""

from __future__ import annotations

import time
import tracemalloc
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest

from holdfast.api.errors import RequestError
from holdfast.dashboard.forms import form_fields
from tests.dashboard.visitor import OWN_PAGE, Guest

if TYPE_CHECKING:
    from tests.http.site import Reply, Site

TYPED = {**OWN_PAGE, "content-type": "application/x-www-form-urlencoded"}
ESCAPED = b"a=" + b"%01" * 1_390_000


async def send(site: Site, path: str, form: bytes, **headers: str) -> Reply:
    given = {**TYPED, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await site.call("POST", path, raw=form, headers=given)


@pytest.mark.parametrize("form", [ESCAPED, b"a=" + b"%ff" * 4000, b"&" * 9000, b"a" * 8193])
async def test_login_without_a_key_costs_little(site: Site, form: bytes) -> None:
    await site.key("operator")
    parts = [form[at : at + 65_536] for at in range(0, len(form), 65_536)]

    tracemalloc.start()
    began = time.thread_time()
    replies = [await send(site, "/login", parts), await send(site, "/login", form)]  # type: ignore[arg-type]
    took, (_, peak) = time.thread_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [413, 413] == [reply.status for reply in replies]
    assert 1_000_000 > peak
    assert 0.05 > took


async def test_announced_size_of_a_form_is_judged_before_it_arrives(site: Site) -> None:
    await site.key("operator")

    reply = await send(site, "/login", b"a=1", content_length="4000000")

    assert 413 == reply.status


async def test_form_that_its_caller_may_not_send_is_not_read(site: Site) -> None:
    guest = Guest(site)
    await guest.sign_in(await site.key("observer"))
    cookie = "; ".join(f"{name}={value}" for name, value in guest.cookies.items())

    refused = await send(site, "/submit", ESCAPED, cookie=cookie)
    unknown = await send(site, "/nothing", ESCAPED, cookie=cookie)
    stranger = await send(site, "/submit", ESCAPED)

    assert [403, 404, 401] == [reply.status for reply in (refused, unknown, stranger)]


async def test_forms_have_sizes_of_their_own(site: Site, guest: Guest) -> None:
    await site.submit()

    small = await send(site, "/queues/default/pause", b"reason=" + b"x" * 70_000)
    most = await send(site, "/submit", ESCAPED)

    assert [413, 413] == [small.status, most.status]


async def test_long_address_is_left_out_of_the_login(site: Site) -> None:
    await site.key("operator")

    reply = await Guest(site).get("/jobs?q=" + "x" * 9000)

    assert "/login" == reply.headers["location"]


@pytest.mark.parametrize(
    "form",
    [
        b"",
        b"a=1&b=2&a=3",
        b"a",
        b"=1",
        b"a=b=c",
        b"&a=1&&",
        b"a=%zz%4",
        b"a=%C3%A9+%2B%ff",
        b"%61=%0D%0A",
        b"a=",
    ],
)
def test_fields_are_those_that_the_standard_library_reads(form: bytes) -> None:
    expected = parse_qs(form.decode(), keep_blank_values=True)

    assert expected == form_fields(form)


def test_long_values_are_decoded_in_slices_with_little_memory() -> None:
    forms = [b"a=" + b"x" * at + b"%01" * 530_000 for at in range(3)]

    tracemalloc.start()
    read = [form_fields(form) for form in forms]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [["x" * at + "\x01" * 530_000] for at in range(3)] == [form["a"] for form in read]
    assert 12_000_000 > peak


def test_form_has_a_bounded_number_of_fields() -> None:
    with pytest.raises(RequestError, match="2000 fields"):
        form_fields(b"&" * 2000)
