"""holdfast in Litestar: a plugin that opens the app and provides it to handlers as ``jobs``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta

from litestar import Litestar
from litestar.config.app import AppConfig
from litestar.di import Provide
from litestar.plugins import InitPlugin

from holdfast.app import Holdfast
from holdfast.contrib.embedding import embedded


class HoldfastPlugin(InitPlugin):
    """Opens an app with the site; with ``worker`` the site runs jobs, in each of its processes."""

    def __init__(
        self,
        app: Holdfast,
        *,
        worker: bool = False,
        queues: Sequence[str] | Mapping[str, float] = ("default",),
        slots: int = 20,
        grace: timedelta = timedelta(seconds=10),
        dependency: str = "jobs",
    ) -> None:
        self._app = app
        self._worker = worker
        self._queues = queues
        self._slots = slots
        self._grace = grace
        self._dependency = dependency

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the lifespan and the dependency."""
        app_config.lifespan.append(self._opened)
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
            yield


__all__ = ["HoldfastPlugin"]
