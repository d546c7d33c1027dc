"""Putting it together: the routes, one list, and the ASGI application over them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router

from holdfast.api.errors import Refusal
from holdfast.app import Holdfast
from holdfast.http import requests
from holdfast.http.endpoint import Endpoint
from holdfast.http.routes import (
    events,
    health,
    jobs,
    leases,
    manage,
    outcomes,
    submit,
    system,
    webhooks,
)
from holdfast.http.service import Receive, Scope, Send, Service, respond
from holdfast.observe import Observer

ENDPOINTS: tuple[Endpoint, ...] = (
    *submit.ENDPOINTS,
    *jobs.ENDPOINTS,
    *manage.ENDPOINTS,
    *system.ENDPOINTS,
    *events.ENDPOINTS,
    *leases.ENDPOINTS,
    *outcomes.ENDPOINTS,
    *webhooks.ENDPOINTS,
    *health.ENDPOINTS,
)
"""Every route. A further part of the service adds its own list here."""


class _Path:
    """All methods of one path."""

    def __init__(self, service: Service, endpoints: Sequence[Endpoint]) -> None:
        self._service = service
        self._methods = {endpoint.method: endpoint for endpoint in endpoints}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._methods.get(scope["method"])
        if endpoint is not None:
            await self._service.serve(endpoint, scope, receive, send)
        else:
            refusal = Refusal("METHOD_NOT_ALLOWED", allow=", ".join(sorted(self._methods)))
            await _refuse(self._service, refusal, scope, send)


class _Straight:
    """Finds the method of a fixed path at once; a router tries one pattern after the other."""

    def __init__(self, router: Router, service: Service, endpoints: Sequence[Endpoint]) -> None:
        self._router = router
        self._service = service
        self._fixed = {(e.path, e.method): e for e in endpoints if "{" not in e.path}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        place = (scope["path"], scope["method"]) if scope["type"] == "http" else ("", "")
        endpoint = self._fixed.get(place)
        if endpoint is None:
            return self._router(scope, receive, send)
        scope["path_params"] = {}
        return self._service.serve(endpoint, scope, receive, send)


async def _refuse(service: Service, refusal: Refusal, scope: Scope, send: Send) -> None:
    request_id = service.request_ids.of(dict(scope["headers"]))
    await respond(send, service.refused(refusal, request_id), request_id, b"")


def create_app(
    app: Holdfast,
    *,
    observer: Observer | None = None,
    limits: requests.RequestLimits | None = None,
    hosts: Sequence[str] = (),
    cors: Sequence[str] = (),
    endpoints: Sequence[Endpoint] = ENDPOINTS,
) -> Starlette:
    """Return the service over an app's store, as an ASGI application.

    ``cors`` are origins whose pages may call it; none by default. The application opens the
    store when it starts and closes it when it stops; ``state.service`` is what it runs on.
    """
    service = Service(app, observer=observer, limits=limits, hosts=hosts, endpoints=endpoints)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.close()

    async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
        await _refuse(service, Refusal("NOT_FOUND", "there is nothing here"), scope, send)

    paths: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, []).append(endpoint)
    routes = [Route(path, _Path(service, found)) for path, found in sorted(paths.items(), key=_few)]
    middleware = (
        [Middleware(CORSMiddleware, allow_origins=cors, allow_methods=["*"], allow_headers=["*"])]
        if cors
        else []
    )
    made = Starlette(routes=routes, lifespan=lifespan, middleware=middleware)
    made.router.default = nowhere
    made.router.redirect_slashes = False
    if not cors:  # the service answers every error itself: nothing is left for middleware to do
        made.middleware_stack = _Straight(made.router, service, endpoints)
    made.state.service = service
    return made


def _few(item: tuple[str, list[Endpoint]]) -> int:
    """Fixed paths before those with a name in them."""
    return item[0].count("{")
