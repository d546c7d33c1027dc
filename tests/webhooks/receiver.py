"""An HTTP server that records its calls and answers as a test decides."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from aiohttp import web

PATIENCE = 15.0


@dataclass
class Call:
    headers: dict[str, str]
    body: bytes
    path: str


@dataclass
class Receiver:
    """The calls a receiver got; ``answer`` decides on each, given its number from 1."""

    calls: list[Call] = field(default_factory=list)
    answer: Callable[[int], web.Response | float] = lambda _: web.Response(status=204)
    url: str = ""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for(self, count: int = 1) -> list[Call]:
        """Wait for so many calls."""
        async with asyncio.timeout(PATIENCE):
            while len(self.calls) < count:
                self._news.clear()
                await self._news.wait()
        return self.calls

    async def hear(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.calls.append(Call(headers, await request.read(), request.path))
        self._news.set()
        wanted = self.answer(len(self.calls))
        if isinstance(wanted, float):
            await asyncio.sleep(wanted)  # a receiver that takes so long
            return web.Response(status=204)
        return wanted


@contextlib.asynccontextmanager
async def listening(
    receiver: Receiver | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """Run a receiver on a free port of this machine."""
    receiver = receiver or Receiver()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver.hear)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    _, port = runner.addresses[0][:2]
    receiver.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()
