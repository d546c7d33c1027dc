"""The feed: one reader for any number of tabs, within a budget, through outages."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import pytest

from holdfast import Holdfast
from holdfast.dashboard.routes import SCREENS
from holdfast.http.api_keys import list_keys
from holdfast.http.key_changes import revoke_key
from holdfast.store import MemoryStore
from tests.dashboard.counted import CountedStore
from tests.dashboard.visitor import Guest, dashboard_site, failed_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.http.site import Site


@pytest.fixture
async def counted() -> AsyncIterator[tuple[Site, CountedStore]]:
    store = CountedStore(MemoryStore())
    async with dashboard_site(Holdfast(store=store)) as site:
        yield site, store


class Stream:
    """The stream of one tab."""

    def __init__(self, site: Site, path: str, guest: Guest | None = None) -> None:
        self._guest = guest or Guest(site)
        self._path = path
        self.events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        page = (await self._guest.get(self._path)).body.decode()
        feed = page.split('data-feed="')[1].split('"', 1)[0].replace("&amp;", "&")
        headers = self._guest._headers({})  # the cookies
        self._messages = self._guest.site.exchange("GET", feed, headers=headers)
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _read(self) -> None:
        async for message in self._messages:
            for block in message.get("body", b"").decode().split("\n\n"):
                if block.startswith("event: "):
                    name, _, data = block.partition("\n")
                    text = data.removeprefix("data:").strip()
                    await self.events.put((name[7:], json.loads(text) if text else None))

    async def next(self, wanted: str, seconds: float = 10.0) -> Any:
        async with asyncio.timeout(seconds):
            while True:
                name, data = await self.events.get()
                if name == wanted:
                    return data


async def test_tab_gets_what_changed_and_nothing_else(any_site: Site) -> None:
    await failed_job(any_site)
    async with Stream(any_site, "/failures") as tab:
        await failed_job(any_site, code="OTHER", message="quota exceeded")

        patch = await tab.next("patch")

    assert {"figures", "groups"} == set(patch)
    assert "quota exceeded" in patch["groups"]


async def test_change_between_page_and_stream_is_not_lost(site: Site) -> None:
    guest = Guest(site)
    job_id = await site.submit("late.job", delay=3600)
    async with Stream(site, f"/jobs/{job_id}", guest) as tab:
        await site.post(f"/api/v1/jobs/{job_id}/cancel", {"reason": "at once"})

        patch = await tab.next("patch")

    assert "at once" in patch["state"]


async def test_forms_in_a_patch_have_the_token_of_their_visitor(site: Site) -> None:
    admin = await site.key("admin")
    guests = [Guest(site), Guest(site)]
    for guest in guests:
        await guest.sign_in(await site.key("operator"))
    job_id = await site.submit("some.job", key=admin)
    async with (
        Stream(site, f"/jobs/{job_id}", guests[0]) as one,
        Stream(site, f"/jobs/{job_id}", guests[1]) as other,
    ):
        await site.post(f"/api/v1/jobs/{job_id}/cancel", {}, key=admin)
        patches = [(await tab.next("patch"))["state"] for tab in (one, other)]

    for guest, patch in zip(guests, patches, strict=True):
        assert f'name="token" value="{guest.token}"' in patch
    assert patches[0] != patches[1]


@pytest.mark.slow
async def test_a_hundred_tabs_cost_at_most_three_calls_a_second(
    counted: tuple[Site, CountedStore],
) -> None:
    site, store = counted
    jobs = [await failed_job(site) for _ in range(30)]
    paths = [
        "/failures",
        "/jobs",
        "/overview",
        "/jobs?q=state:failed",
        *(f"/jobs/{j}" for j in jobs),
    ]
    tabs = [Stream(site, paths[number % len(paths)]) for number in range(100)]
    for tab in tabs:
        await tab.__aenter__()
    await asyncio.sleep(3)  # real seconds: the rate is what is measured
    store.calls.clear()

    await asyncio.sleep(10)  # as above
    idle = 5  # the service looks for operations every two seconds, with or without tabs
    calls = sum(store.calls.values()) - idle
    for tab in tabs:
        await tab.__aexit__()

    assert 0 < calls <= 30, store.calls


async def test_views_read_no_more_than_they_declare(counted: tuple[Site, CountedStore]) -> None:
    site, store = counted
    job_id = await failed_job(site)
    group = (await site.get("/api/v1/failures/groups")).json["groups"][0]["group"]
    guest, found = Guest(site), {}
    for screen in SCREENS:
        path = screen.path.replace("{job_id}", job_id).replace("{group}", group)
        if not screen.live or "{" in path:
            continue
        await guest.get(path)
        await site.service.keys.refresh(0)
        store.calls.clear()
        await guest.get(path)
        calls = sum(store.calls.values())
        if calls > screen.reads:
            found[path] = f"{calls} > {screen.reads}: {dict(store.calls)}"

    assert {} == found


async def test_page_of_a_deleted_job_disturbs_no_other_tab(site: Site) -> None:
    job_id = await failed_job(site)
    async with Stream(site, f"/jobs/{job_id}"), Stream(site, "/schedules") as other:
        reply = await site.call("DELETE", f"/api/v1/jobs/{job_id}")

        with pytest.raises(TimeoutError):
            await other.next("away", seconds=3)

    assert 200 == reply.status


async def test_store_away_is_said_and_ends_by_itself(counted: tuple[Site, CountedStore]) -> None:
    site, store = counted
    await failed_job(site)
    async with Stream(site, "/failures") as tab:
        store.is_away = True
        await tab.next("away")
        page = await Guest(site).get("/jobs")
        store.is_away = False
        await tab.next("back")

    assert 503 == page.status
    assert b"The store does not respond" in page.body
    assert 200 == (await Guest(site).get("/jobs")).status


async def test_stream_ends_with_the_key(site: Site) -> None:
    guest = Guest(site)
    await guest.sign_in(await site.key("operator"))
    async with Stream(site, "/jobs", guest) as tab:
        (key,) = await list_keys(site.store)
        await revoke_key(site.store, key.id)

        await tab.next("ended", 5)


async def test_stream_needs_the_permission_of_its_page(site: Site) -> None:
    guest = Guest(site)
    await guest.sign_in(await site.key("submitter"))

    for at, status in (("/failures", 403), ("/nothing", 404), ("https://evil/jobs", 404)):
        assert status == (await guest.get(f"/live?at={quote(at, safe='')}")).status


async def test_feed_stops_with_its_last_tab(counted: tuple[Site, CountedStore]) -> None:
    site, store = counted
    async with Stream(site, "/jobs"):
        await asyncio.sleep(0.1)  # the stream opens
        assert 1 == site.asgi.state.pages.feed.tabs
    await asyncio.sleep(1.5)  # the feed looks once a second
    store.calls.clear()

    await asyncio.sleep(2)  # as above
    store.calls.pop("kinds", None)  # the service looks for operations, with or without tabs

    assert 0 == site.asgi.state.pages.feed.tabs
    assert {} == store.calls
