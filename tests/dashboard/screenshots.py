"""``python -m tests.dashboard.screenshots [FOLDER]``: the pictures of the documentation.

The week of a company is the same each time: its seed is fixed. The browser is that of the tests.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast
from holdfast.cli.demo.fill import WEEK, Week
from holdfast.cli.demo.stage import LiveCompany, set_the_scene
from holdfast.http.server import maintenance
from holdfast.observe import Silent
from holdfast.runtime.clock import ManualClock
from tests.dashboard.browser import Watched, launched, served

if TYPE_CHECKING:
    from playwright.async_api import Browser

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
JOBS = 20_000
SHOTS = {
    "overview": ("/overview", 1280, 860, "light"),
    "failures": ("/failures?window=24h", 1280, 620, "light"),
    "failure": ("/failures/{group}", 1280, 900, "light"),
    "job": ("/jobs/{job}", 1280, 980, "light"),
    "workflow": ("/jobs/{workflow}", 1280, 900, "light"),
    "jobs": ("/jobs?q=state:failed,dead-letter", 1280, 900, "dark"),
    "retry": ("/bulk?action=retry&q=group:{group}", 1280, 640, "light"),
    "flow": ("/jobs/{workflow}/workflow", 1280, 640, "light"),
    "queue": ("/queues/mail", 1280, 900, "light"),
    "schedules": ("/schedules", 1280, 480, "dark"),
    "phone": ("/failures/{group}", 360, 780, "dark"),
}
"""Name -> address, width, height, light or dark."""


async def main(folder: Path) -> None:
    """Take every picture."""
    with tempfile.TemporaryDirectory() as scratch:
        url = f"sqlite:///{scratch}/week.db"
        week = await _filled(url)
        app = Holdfast(url)
        async with served(app) as running, maintenance(app, Silent()), launched() as browser:
            await LiveCompany(app, week).announce()
            names = await _names(app)
            for name, (path, width, height, scheme) in SHOTS.items():
                address = running.address + path.format(**names)
                await _shoot(browser, address, folder / f"{name}.png", (width, height), scheme)
                print(f"{name}.png")


async def _filled(url: str) -> Week:
    end = datetime.now(UTC)
    clock = ManualClock(end - WEEK)
    app = Holdfast(url, clock=clock)
    week = Week(app, clock, jobs=JOBS)
    async with app:
        await week.fill(end)
        await set_the_scene(app, week)
    return week


async def _names(app: Holdfast) -> dict[str, str]:
    groups = (await app.failure_groups(time_range=86_400)).groups
    jobs = await app.search(group=groups[0].group, limit=1)
    waiting = await app.search(types=["invoice.render"], states=["PENDING"], limit=1)
    return {
        "group": groups[0].group,
        "job": jobs.jobs[0].job_id,
        "workflow": waiting.jobs[0].job_id,
    }


async def _shoot(
    browser: Browser, address: str, file: Path, size: tuple[int, int], scheme: Any
) -> None:
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme
    )
    watched = Watched(await context.new_page())
    await watched.page.goto(address)
    await watched.page.wait_for_selector("main")
    await watched.page.screenshot(path=file)
    assert [] == watched.complaints
    await context.close()


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    place.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(place))
