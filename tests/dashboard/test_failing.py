"""Requests that the dashboard cannot read or serve: a page that says so, and the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreError
from holdfast.store import MemoryStore
from tests.dashboard.visitor import Guest, dashboard_site, text_of

if TYPE_CHECKING:
    from tests.http.site import Site


class Recorder:
    """Keeps events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def emit(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))


class Broken(MemoryStore):
    """A store with a fault of its own."""

    async def logs(self, *_: object, **__: object) -> list[list[object]]:  # type: ignore[override]
        raise StoreError("the disk is gone")


async def test_error_of_a_page_is_in_the_log_under_the_id_that_the_page_shows() -> None:
    recorder = Recorder()
    async with dashboard_site(Holdfast(store=Broken()), observer=recorder) as site:
        job_id = await site.submit()

        page = await Guest(site).get(f"/jobs/{job_id}", x_request_id="request-0001")

    (fields,) = [fields for event, fields in recorder.events if event == "dashboard.failed"]
    assert 500 == page.status
    assert "request-0001" == fields["request_id"]
    assert "the disk is gone" in str(fields["error"])
    assert "with the id request-0001" in text_of(page)
    assert "the disk is gone" not in text_of(page)


@pytest.mark.parametrize(
    "address",
    [
        "/jobs?" + "a=1&" * 1300,
        "/live?" + "a=1&" * 20,
        "/live?at=//[",
        "/live?at=/jobs?" + "a%3D1%26" * 1300,
    ],
    ids=["page", "stream", "stream of no page", "stream of a page"],
)
async def test_address_that_cannot_be_read_is_refused(guest: Guest, address: str) -> None:
    assert (await guest.get(address)).status in (400, 404)


async def test_login_with_too_many_parameters_is_refused(site: Site) -> None:
    await site.key("operator")

    assert 400 == (await Guest(site).get("/login?" + "a=1&" * 20)).status
