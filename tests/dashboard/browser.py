"""The machine's Chromium, and a service that it can reach."""

from __future__ import annotations

import os
import shutil
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from holdfast.dashboard import Dashboard
from holdfast.http.application import create_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import Browser, Page

    from holdfast import Holdfast

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)


def chromium() -> str:
    """Return the path of the machine's Chromium; skip without one, except where CI is set."""
    given = os.environ.get("HOLDFAST_TEST_CHROMIUM", "")
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        reason = "no Chromium on this machine: install one or set HOLDFAST_TEST_CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """Run the browser, without a window."""
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium(), args=[*FLAGS])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def served(app: Holdfast, **options: Any) -> AsyncIterator[Running]:
    """Serve an app with its dashboard on a free port of this machine."""
    made = create_app(app, pages=options.pop("pages", Dashboard), **options)
    async with listening(made) as address:
        yield Running(address, made)


@asynccontextmanager
async def listening(made: Any) -> AsyncIterator[str]:
    """Serve an ASGI application on a free port; yield its address."""
    import asyncio

    config = uvicorn.Config(made, host="127.0.0.1", port=0, log_level="error", ws="none")
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)  # uvicorn has no event for it
        if task.done():
            await task
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        service = getattr(made, "state", None)
        if service is not None and hasattr(service, "service"):
            service.service.stop()
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Running:
    """A served dashboard."""

    def __init__(self, address: str, asgi: Any) -> None:
        self.address = address
        self.asgi = asgi


class Watched:
    """A page whose console, errors and policy reports are collected."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    async def overflow(self) -> float:
        """Return by how many pixels the page is wider than the window."""
        return float(
            await self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        )

    async def violations(self) -> list[str]:
        """Return what axe finds wrong."""
        from axe_playwright_python.base import AXE_FILE_PATH

        # Through the debugger, since the policy of the page lets no other script in.
        source = AXE_FILE_PATH.read_text("utf-8")
        session = await self.page.context.new_cdp_session(self.page)
        await session.send("Runtime.evaluate", {"expression": source})
        result = await self.page.evaluate("axe.run()")
        await session.detach()
        return [
            f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes'][:3]]}"
            for each in result["violations"]
        ]
