"""A real browser walks the dashboard: no complaint of the console, the policy or axe.

Each store is served once; the tests of a store share the browser and the jobs in it.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.store import MemoryStore
from tests.conformance.conftest import SERVED
from tests.conformance.stores import PLACES
from tests.dashboard.browser import Watched, launched, served
from tests.dashboard.counted import CountedStore
from tests.dashboard.scene import HOSTILE, hostile_job, set_scene
from tests.dashboard.visitor import failed_job
from tests.http.site import Site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, BrowserContext

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WHY = "Traceback (most recent call last):\n  File 'db.py', line 9\npsycopg.OperationalError: gone"
STORES = ["sqlite", "postgres", "redis"]
MAIN = ("overview", "failures", "failure", "jobs", "job-dead", "queue", "workers", "workflow")
"""Screens that axe judges on every store, once; it takes a second per page."""
SIZES = {"wide": (1440, 900), "narrow": (320, 720)}


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    """The browser, one for all tests."""
    async with launched() as browser:
        yield browser


class Stage:
    """A served store with a scene on it."""

    def __init__(self, name: str, address: str, site: Site, pages: dict[str, str]) -> None:
        self.name = name
        self.address = address
        self.site = site
        self.pages = pages


@pytest.fixture(params=[pytest.param(name, marks=SERVED.get(name, ())) for name in STORES])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """Each store in turn, with jobs of every kind."""
    with PLACES[request.param](request) as place:
        async with stage_over(Holdfast(place.url)) as made:
            yield made


@pytest.fixture
async def memory_stage() -> AsyncIterator[Stage]:
    """A store in memory, with jobs of every kind."""
    async with stage_over(Holdfast("memory://")) as made:
        yield made


def stage_over(app: Holdfast) -> Any:
    import contextlib

    @contextlib.asynccontextmanager
    async def made() -> AsyncIterator[Stage]:
        async with served(app) as running:
            site = Site(app, running.asgi)
            name = app.url.partition(":")[0]
            yield Stage(name, running.address, site, await set_scene(site))

    return made()


async def _context(browser: Browser, size: str, scheme: Any) -> BrowserContext:
    width, height = SIZES[size]
    return await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme
    )


@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("narrow", "dark")])
async def test_every_screen_is_free_of_complaints(
    browser: Browser, stage: Stage, size: str, scheme: str
) -> None:
    context = await _context(browser, size, scheme)
    found: dict[str, object] = {}
    for name, path in stage.pages.items():
        watched = Watched(await context.new_page())
        response = await watched.page.goto(stage.address + path)
        assert response is not None
        assert 200 == response.status, path
        await watched.page.wait_for_selector("main")
        judged = stage.name == "sqlite" or (size == "wide" and name in MAIN)
        problems = [*watched.complaints, *(await watched.violations() if judged else ())]
        if (wider := await watched.overflow()) > 0:
            problems.append(f"{wider} pixels too wide")
        if problems:
            found[name] = problems
        await watched.page.close()
    await context.close()

    assert {} == found


async def test_failed_job_is_found_and_retried_with_the_keyboard_alone(
    browser: Browser, stage: Stage
) -> None:
    await failed_job(stage.site, "keyboard.job", code="ONLY_THIS", message="lost its way")
    context = await _context(browser, "wide", "light")
    watched = Watched(await context.new_page())
    page = watched.page
    await page.goto(f"{stage.address}/jobs")

    await page.keyboard.press("/")
    await page.keyboard.type("type:keyboard.job state:failed")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile("q="))
    await page.wait_for_selector("[data-row]")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await page.keyboard.press("R")
    await page.wait_for_url(re.compile("/bulk"))
    await page.wait_for_selector("button:focus")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".notice")
    notice = await page.inner_text(".notice")
    await context.close()

    assert "1 job retried." == notice
    assert [] == watched.complaints


async def test_from_something_fails_to_why_and_to_only_those_retried_in_two_clicks_each(
    browser: Browser, stage: Stage
) -> None:
    site = stage.site
    hit = [
        await failed_job(site, "night.job", code="DB_GONE", message=f"no host {n}", stack_trace=WHY)
        for n in range(3)
    ]
    other = await failed_job(site, "night.job", code="BAD_INPUT", message="not a date")
    context = await _context(browser, "wide", "dark")
    watched = Watched(await context.new_page())
    page = watched.page

    await page.goto(stage.address)
    await page.click("text=DB_GONE in night.job")  # the first click: what this error is
    await page.wait_for_selector(".trace")
    why = await page.inner_text(".trace")
    await page.click(".panel .meta a")  # the second: the newest job that it hit
    await page.wait_for_selector(".explain")
    explained = await page.inner_text(".explain")
    await page.go_back()
    await page.click("text=Retry 3 jobs")  # the third: how many, and as of which instant
    await page.wait_for_selector("button:focus")
    late = await failed_job(site, "night.job", code="DB_GONE", message="no host 9")
    await page.click("button:has-text('Retry 3 jobs')")  # the fourth
    await page.wait_for_selector(".notice")
    notice = await page.inner_text(".notice")
    await context.close()

    assert "psycopg.OperationalError" in why
    assert "DB_GONE" in explained
    assert "3 jobs retried." == notice
    jobs = [(await site.get(f"/api/v1/jobs/{each}")).json for each in (*hit, other, late)]
    assert ["SCHEDULED"] * 3 + ["FAILED"] * 2 == [job["state"] for job in jobs]
    assert [] == watched.complaints


async def test_page_follows_its_job_without_a_reload(browser: Browser, stage: Stage) -> None:
    site = stage.site
    job_id = await site.submit("live.job")
    context = await _context(browser, "wide", "dark")
    watched = Watched(await context.new_page())
    page = watched.page
    await page.goto(f"{stage.address}/jobs/{job_id}")
    await page.evaluate("window.kept = true")
    assert "Ready" in await page.inner_text(".head .state")

    (job,) = await site.claim(types=["live.job"])
    await page.wait_for_selector(".head .is-running", timeout=15_000)
    await site.post(
        f"/api/v1/jobs/{job_id}/complete",
        {"lease_token": job["lease_token"], "output": {"sent": True}},
    )
    await page.wait_for_selector(".head .is-completed", timeout=15_000)
    kept = await page.evaluate("window.kept")
    text = await page.inner_text("main")
    await context.close()

    assert kept is True
    assert "sent" in text
    assert [] == watched.complaints


async def test_hostile_job_shows_as_text(browser: Browser, stage: Stage) -> None:
    job_id, group = await hostile_job(stage.site)
    context = await _context(browser, "narrow", "light")
    problems: list[str] = []
    for path in (f"/jobs/{job_id}", "/jobs", "/failures", f"/failures/{group}"):
        watched = Watched(await context.new_page())
        await watched.page.goto(stage.address + path)
        await asyncio.sleep(1.5)  # a patch of the feed must not run it either
        text = await watched.page.inner_text("main")
        source = await watched.page.content()
        if await watched.page.evaluate("window.hacked || document.images.length"):
            problems.append(f"{path}: markup became elements")
        if "\u202e" in source:
            problems.append(f"{path}: a bidi control turns the text around")
        if HOSTILE[:20] not in text and path != "/failures":
            problems.append(f"{path}: the text is not shown")
        if await watched.overflow() > 0:
            problems.append(f"{path}: too wide")
        problems += watched.complaints
        await watched.page.close()
    await context.close()

    assert [] == problems


async def test_list_holds_still_while_rows_are_ticked_and_shift_ticks_a_range(
    browser: Browser, memory_stage: Stage
) -> None:
    site = memory_stage.site
    for _ in range(5):
        await site.submit("many.jobs", delay=3600)
    context = await _context(browser, "wide", "light")
    watched = Watched(await context.new_page())
    page = watched.page
    await page.goto(f"{memory_stage.address}/jobs?q=type:many.jobs")
    boxes = page.locator("tbody input[name=id]")

    await boxes.nth(1).click()
    await boxes.nth(3).click(modifiers=["Shift"])
    await site.submit("many.jobs", delay=3600)
    await page.locator("text=1 newer").wait_for()
    chosen = await page.inner_text("[data-selected]")
    held = await page.locator("[data-row]").count()
    for number in (1, 2, 3):
        await boxes.nth(number).click()
    await page.locator("[data-row]").nth(5).wait_for()
    await context.close()

    assert "3 selected, 1 newer when you untick" == chosen
    assert 5 == held
    assert [] == watched.complaints


async def test_page_that_is_fetched_again_keeps_what_was_typed(
    browser: Browser, memory_stage: Stage
) -> None:
    site, address = memory_stage.site, memory_stage.address
    job_id = await site.submit("typed.job", hold=True)
    context = await _context(browser, "wide", "light")
    watched = Watched(await context.new_page())
    page = watched.page

    async def without_stream(route: Any) -> None:
        answer = await route.fetch()
        html = re.sub(' data-feed="[^"]*"', ' data-refresh="1"', await answer.text())
        await route.fulfill(response=answer, body=html)

    await page.route(re.compile(f"/jobs/{job_id}"), without_stream)
    await page.goto(f"{address}/jobs/{job_id}")
    await page.click("summary:has-text('Cancel…')")
    await page.fill("input[name=reason]", "no longer needed")
    await page.focus("summary:has-text('Cancel…')")
    await site.post(f"/api/v1/jobs/{job_id}/release", {})
    await page.locator(".head .is-scheduled").wait_for(timeout=15_000)
    typed = await page.input_value("input[name=reason]")
    is_open = await page.is_visible("input[name=reason]")
    await page.unroute_all(behavior="wait")
    await context.close()

    assert "no longer needed" == typed
    assert is_open
    assert [] == watched.complaints


async def test_theme_is_remembered_and_help_opens(browser: Browser, memory_stage: Stage) -> None:
    context = await _context(browser, "wide", "light")
    watched = Watched(await context.new_page())
    page = watched.page
    await page.goto(f"{memory_stage.address}/jobs")

    await page.keyboard.press("t")
    await page.reload()
    theme = await page.evaluate("document.documentElement.dataset.theme")
    await page.keyboard.press("?")
    helped = await page.is_visible("#help")
    await page.keyboard.press("Escape")
    await page.keyboard.press("g")
    await page.keyboard.press("f")
    await page.wait_for_url(re.compile("/failures"))
    await context.close()

    assert "dark" == theme
    assert helped
    assert [] == watched.complaints


async def test_hidden_tab_closes_its_stream(browser: Browser, memory_stage: Stage) -> None:
    context = await _context(browser, "wide", "light")
    page = await context.new_page()
    await page.goto(f"{memory_stage.address}/jobs")
    feed = memory_stage.site.asgi.state.pages.feed
    await _until(lambda: feed.tabs == 1)

    await page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )

    await _until(lambda: feed.tabs == 0)
    await context.close()


async def test_store_away_shows_a_banner_and_the_page_goes_on_by_itself(browser: Browser) -> None:
    store = CountedStore(MemoryStore())
    async with stage_over(Holdfast(store=store)) as stage:
        context = await _context(browser, "wide", "light")
        watched = Watched(await context.new_page())
        page = watched.page
        await page.goto(f"{stage.address}/jobs")
        rows = await page.locator("[data-row]").count()

        store.is_away = True
        await page.locator("#banner").wait_for(timeout=15_000)
        said = await page.inner_text("#banner")
        kept = await page.locator("[data-row]").count()
        store.is_away = False
        await page.locator("#banner").wait_for(state="hidden", timeout=15_000)
        await stage.site.submit("after.all")
        await page.locator("text=after.all").wait_for(timeout=15_000)
        await context.close()

    assert "The store does not respond" in said
    assert rows == kept
    assert [] == watched.complaints


async def test_everything_works_without_script(browser: Browser, memory_stage: Stage) -> None:
    site = memory_stage.site
    job_id = await failed_job(site, "plain.job", code="ONLY_THIS", message="lost its way")
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()

    await page.goto(memory_stage.address)
    await page.fill("input[name=q]", "type:plain.job")
    await page.press("input[name=q]", "Enter")
    await page.check("tbody input[name=id]")
    await page.click("text=Retry…")
    await page.click("button:has-text('Retry 1 job')")
    notice = await page.inner_text(".notice")
    await context.close()

    assert "1 job retried." == notice
    assert "SCHEDULED" == (await site.get(f"/api/v1/jobs/{job_id}")).json["state"]


async def _until(holds: Any, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # the browser decides when
