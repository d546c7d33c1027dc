"""holdfast in an ASGI application: Starlette, FastAPI and whatever takes a lifespan."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

from holdfast.app import Holdfast
from holdfast.contrib.embedding import embedded
from holdfast.errors import MissingExtraError

try:
    from starlette.requests import HTTPConnection
except ImportError:
    raise MissingExtraError("server", "starlette") from None

STATE = "holdfast"
"""The attribute of ``site.state`` that is the app."""
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(
    app: Holdfast,
    inner: Lifespan | None = None,
    *,
    worker: bool = False,
    queues: Sequence[str] | Mapping[str, float] = ("default",),
    slots: int = 20,
    grace: timedelta = timedelta(seconds=10),
) -> Lifespan:
    """Return a lifespan that opens an app with the site and closes it with it.

    With ``worker`` the site also runs jobs, in each of its processes. ``inner`` is the lifespan
    of the site itself; it is entered when the app is open, and what it yields is passed on.
    """

    @contextlib.asynccontextmanager
    async def opened(site: Any) -> AsyncIterator[Any]:
        around = embedded(app, worker=worker, queues=queues, slots=slots, grace=grace)
        async with around, inner(site) if inner else contextlib.nullcontext() as state:
            setattr(site.state, STATE, app)
            try:
                yield state
            finally:
                await _close_mounted(site)

    return opened


def job_app(request: HTTPConnection) -> Holdfast:
    """Return the app that the site's lifespan opened: a dependency of FastAPI, too."""
    found = getattr(request.app.state, STATE, None)
    if not isinstance(found, Holdfast):
        raise RuntimeError(
            "the site has no app of holdfast: create it with"
            " lifespan=holdfast.contrib.starlette.lifespan(app)"
        )
    return found


async def _close_mounted(site: Any) -> None:
    """Close what starts with its first request: mounted applications have no lifespan."""
    for route in getattr(site, "routes", ()):
        mounted: Any = getattr(route, "app", None)
        if getattr(mounted, "closes_with_site", False):  # the API or the dashboard
            await mounted.close()


__all__ = ["job_app", "lifespan"]
