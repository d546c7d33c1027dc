"""Announces a worker and what its tasks declare in the store, for others to see."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta

from holdfast.model.workers import WorkerInfo
from holdfast.observe import Observer
from holdfast.operations.publisher import Publisher
from holdfast.operations.workers import WORKER_TTL, announce
from holdfast.store import Store
from holdfast.tasks.registry import Registry


class Announcer:
    """Announces a worker again and again, and reports a store that does not notify it."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        info: Callable[[], WorkerInfo],
        registry: Registry,
    ) -> None:
        self._store = store
        self._observer = observer
        self._info = info
        self._registry = registry

    async def announce(self) -> None:
        """Announce the worker once, unless that fails: claims fail and report it as well."""
        with contextlib.suppress(Exception):
            await announce(self._store, self._info())

    async def publish(self) -> None:
        """Publish what the tasks and queues of this worker declare."""
        info = self._info()
        publisher = Publisher(self._store, info.id, info.started_at)
        await publisher.publish_tasks(self._registry, info.queues)
        await publisher.publish_profiles(self._registry.profiles)

    async def leave(self) -> None:
        """Remove the announcement."""
        with contextlib.suppress(Exception):  # it expires
            await announce(self._store, self._info(), timedelta(0))

    async def run(self) -> None:
        """Announce the worker until cancelled."""
        reported = before = ""
        while True:
            await asyncio.sleep(WORKER_TTL.total_seconds() / 3)
            await self.announce()
            with contextlib.suppress(Exception):  # a worker of other code may be gone
                await self.publish()
            reason = self._store.not_notified_because
            if reason and reason == before and reason != reported:  # it lasts
                self._observer.emit("store.not_notified", error=reason)
                reported = reason
            before = reason
