"""The list of all routes, and the ASGI application that serves them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match, Route, Router

from holdfast.api.errors import RequestError
from holdfast.app import Holdfast
from holdfast.http.dispatch import Dispatcher
from holdfast.http.endpoint import Endpoint
from holdfast.http.openapi import document
from holdfast.http.permissions import Authorize
from holdfast.http.requests import RequestLimits
from holdfast.http.responses import Receive, Scope, Send
from holdfast.http.routes import (
    batches,
    control,
    events,
    health,
    jobs,
    leases,
    manage,
    operations,
    outcomes,
    oversight,
    schedules,
    submit,
    system,
    webhooks,
)
from holdfast.http.service import Service
from holdfast.model.policy import ServiceLimits
from holdfast.observe import Observer

ENDPOINTS: tuple[Endpoint, ...] = (
    *submit.ENDPOINTS,
    *jobs.ENDPOINTS,
    *batches.ENDPOINTS,
    *manage.ENDPOINTS,
    *system.ENDPOINTS,
    *oversight.ENDPOINTS,
    *events.ENDPOINTS,
    *leases.ENDPOINTS,
    *outcomes.ENDPOINTS,
    *webhooks.ENDPOINTS,
    *schedules.ENDPOINTS,
    *operations.ENDPOINTS,
    *control.ENDPOINTS,
    *health.ENDPOINTS,
)
"""Every route of the service."""


class PageSite(Protocol):
    """Serves pages beside the API."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]: ...

    async def close(self) -> None:
        """End what it has started."""
        ...


MakePages = Callable[[Service], PageSite]


class _Path:
    """All methods of one path."""

    def __init__(self, dispatcher: Dispatcher, endpoints: Sequence[Endpoint]) -> None:
        self._dispatcher = dispatcher
        self._methods = {endpoint.method: endpoint for endpoint in endpoints}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._methods.get(scope["method"])
        if endpoint is not None:
            await self._dispatcher.serve(endpoint, scope, receive, send)
        else:
            allowed = ", ".join(sorted(self._methods))
            error = RequestError("METHOD_NOT_ALLOWED", allow=allowed)
            await self._dispatcher.refuse(error, scope, receive, send)


class _FixedPaths:
    """Finds the endpoint of a fixed path in a dict; a router tries one pattern after another."""

    def __init__(
        self, router: Router, dispatcher: Dispatcher, endpoints: Sequence[Endpoint]
    ) -> None:
        self._router = router
        self._dispatcher = dispatcher
        self._fixed = {(e.path, e.method): e for e in endpoints if "{" not in e.path}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        key = (scope["path"], scope["method"]) if scope["type"] == "http" else ("", "")
        endpoint = self._fixed.get(key)
        if endpoint is None:
            return self._router(scope, receive, send)
        scope["path_params"] = {}
        return self._dispatcher.serve(endpoint, scope, receive, send)


def create_app(  # noqa: PLR0913  # one keyword per part of a service
    app: Holdfast,
    *,
    observer: Observer | None = None,
    limits: RequestLimits | None = None,
    capacity: ServiceLimits | None = None,
    hosts: Sequence[str] = (),
    cors: Sequence[str] = (),
    endpoints: Sequence[Endpoint] = ENDPOINTS,
    pages: MakePages | None = None,
    authorize: Authorize | None = None,
) -> Starlette:
    """Return the service over an app's store, as an ASGI application.

    ``pages`` makes what serves every path that is not the API's. ``authorize`` is the login of
    the site that it is mounted in, in place of API keys.

    ``cors`` are the origins whose pages may call it; none by default. The application opens the
    store when it starts and closes it when it stops; ``state.service`` is its ``Service``.
    """
    service = Service(
        app,
        describe=partial(document, endpoints),
        observer=observer,
        hosts=hosts,
        origins=cors,
        capacity=capacity,
        authorize=authorize,
    )
    dispatcher = Dispatcher(service, limits)
    site = pages(service) if pages else None

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            if site is not None:
                await site.close()
            await service.close()

    async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
        if site is not None and not scope["path"].startswith("/api/"):
            await site(scope, receive, send)
            return
        await dispatcher.refuse(RequestError("NOT_FOUND", "no such path"), scope, receive, send)

    made = Starlette(
        routes=_routes(dispatcher, endpoints), lifespan=lifespan, middleware=_middleware(cors)
    )
    made.router.default = not_found
    made.router.redirect_slashes = False
    if not cors:  # the dispatcher handles every error, so no middleware is needed
        made.middleware_stack = _FixedPaths(made.router, dispatcher, endpoints)
    made.state.service = service
    made.state.pages = site
    return made


def _routes(dispatcher: Dispatcher, endpoints: Sequence[Endpoint]) -> list[Route]:
    """Return one route per path, fixed paths first."""
    paths: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, []).append(endpoint)
    ordered = sorted(paths, key=lambda path: path.count("{"))
    return [_Route(path, _Path(dispatcher, paths[path])) for path in ordered]


class _Route(Route):
    """A route whose parameters may contain a slash, sent as %2F: ids of BullMQ's jobs may."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        raw = scope.get("raw_path", b"").decode("latin-1") if scope["type"] == "http" else ""
        if not _ENCODED_SLASH.search(raw):
            return super().matches(scope)
        path = unquote(_ENCODED_SLASH.sub("%00", raw))
        match, child = super().matches({**scope, "path": path})
        given = child.get("path_params", {})
        child["path_params"] = {name: value.replace("\0", "/") for name, value in given.items()}
        return match, child


_ENCODED_SLASH = re.compile("%2f", re.IGNORECASE)


def _middleware(cors: Sequence[str]) -> list[Middleware]:
    if not cors:
        return []
    return [
        Middleware(CORSMiddleware, allow_origins=cors, allow_methods=["*"], allow_headers=["*"])
    ]
