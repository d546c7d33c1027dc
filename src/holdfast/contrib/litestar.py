"""holdfast in Litestar: a plugin that opens the app and provides it to handlers as ``jobs``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from holdfast.app import Holdfast
from holdfast.contrib.embedding import embedded
from holdfast.errors import MissingExtraError

try:
    from litestar import Litestar, asgi
    from litestar.config.app import AppConfig
    from litestar.di import Provide
    from litestar.plugins import InitPlugin
    from litestar.types import Receive, Scope, Send
except ImportError:
    raise MissingExtraError("litestar", "litestar") from None


class Mountable(Protocol):
    """What ``holdfast.contrib.mounting`` makes: the API, or the dashboard."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    async def close(self) -> None:
        """End what it has started."""


class HoldfastPlugin(InitPlugin):
    """Opens an app with the site; with ``worker`` the site runs jobs, in each of its processes.

    ``mounts`` maps paths to the dashboard or the API of ``holdfast.contrib.mounting``; they close
    with the site.
    """

    def __init__(
        self,
        app: Holdfast,
        *,
        worker: bool = False,
        queues: Sequence[str] | Mapping[str, float] = ("default",),
        slots: int = 20,
        grace: timedelta = timedelta(seconds=10),
        dependency: str = "jobs",
        mounts: Mapping[str, Mountable] | None = None,
    ) -> None:
        self._app = app
        self._worker = worker
        self._queues = queues
        self._slots = slots
        self._grace = grace
        self._dependency = dependency
        self._mounts = dict(mounts or {})

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the lifespan, the dependency and what is mounted."""
        app_config.lifespan.append(self._opened)
        for path, mounted in self._mounts.items():
            app_config.route_handlers.append(_handler(path, mounted))
        app_config.dependencies[self._dependency] = Provide(self._provided, sync_to_thread=False)
        app_config.signature_types.append(Holdfast)
        return app_config

    def _provided(self) -> Holdfast:
        return self._app

    @contextlib.asynccontextmanager
    async def _opened(self, _: Litestar) -> AsyncIterator[None]:
        async with embedded(
            self._app,
            worker=self._worker,
            queues=self._queues,
            slots=self._slots,
            grace=self._grace,
        ):
            try:
                yield
            finally:
                for mounted in self._mounts.values():
                    await mounted.close()


def _handler(place: str, mounted: Mountable) -> Any:
    """Return the route of a mounted application, which sees its place as ASGI's ``root_path``.

    Litestar leaves the place out of the path, names it nowhere, and ends every path with a slash.
    """
    root = "/" + place.strip("/")

    @asgi(root, is_mount=True, copy_scope=True, name=f"holdfast {root}")
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        whole = str(scope.get("root_path") or "") + root
        below = scope["path"].strip("/")
        inner: Any = {**scope, "root_path": whole, "path": f"{whole}/{below}".rstrip("/")}
        await mounted(inner, receive, send)

    return serve


__all__ = ["HoldfastPlugin"]
