"""The HTTP API and the dashboard as parts of an ASGI site; they need the extra ``server``."""

from __future__ import annotations

import asyncio

from holdfast.app import Holdfast
from holdfast.dashboard import Caller, Role, dashboard
from holdfast.http.application import create_app
from holdfast.http.permissions import Authorize
from holdfast.http.responses import Receive, Scope, Send
from holdfast.http.service import Service


class MountedApi:
    """The HTTP API of an app as a part of a site, with the login of the site.

    ``site.mount("/queue", MountedApi(app, authorize))``. ``authorize(scope)`` returns the
    ``Caller`` of a request, or None to refuse it; it may be a coroutine function. The API starts
    with its first request, on the app that the site's lifespan has opened.
    """

    closes_with_site = True
    """The lifespan of ``holdfast.contrib.starlette`` closes it."""

    def __init__(self, app: Holdfast, authorize: Authorize) -> None:
        self._api = create_app(app, authorize=authorize)
        self._service: Service = self._api.state.service
        self._starting = asyncio.Lock()
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the API is mounted into a site and serves no {scope['type']}")
        async with self._starting:
            if not self._started:
                await self._service.join()
                self._started = True
        await self._api(scope, receive, send)

    async def close(self) -> None:
        """End what the API has started; the site's lifespan does this."""
        if self._started:
            self._started = False
            await self._service.close()


__all__ = ["Authorize", "Caller", "MountedApi", "Role", "dashboard"]
