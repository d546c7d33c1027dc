"""Announces a worker in the store, so that others see that it is present."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta

from holdfast.errors import StoreUnavailableError
from holdfast.model.workers import WorkerInfo
from holdfast.observe import Observer
from holdfast.operations.workers import WORKER_TTL, announce
from holdfast.store import Store


class Announcer:
    """Announces a worker again and again, and reports a store that does not notify it."""

    def __init__(self, store: Store, observer: Observer, info: Callable[[], WorkerInfo]) -> None:
        self._store = store
        self._observer = observer
        self._info = info

    async def announce(self) -> None:
        """Announce the worker once, unless the store is unavailable."""
        with contextlib.suppress(StoreUnavailableError):
            await announce(self._store, self._info())

    async def leave(self) -> None:
        """Remove the announcement."""
        with contextlib.suppress(StoreUnavailableError):
            await announce(self._store, self._info(), timedelta(0))

    async def run(self) -> None:
        """Announce the worker until cancelled."""
        reported = before = ""
        while True:
            await asyncio.sleep(WORKER_TTL.total_seconds() / 3)
            await self.announce()
            reason = self._store.not_notified_because
            if reason and reason == before and reason != reported:  # it lasts
                self._observer.emit("store.not_notified", error=reason)
                reported = reason
            before = reason
