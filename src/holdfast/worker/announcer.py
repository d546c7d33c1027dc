"""Announces a worker and what its tasks declare in the store, for others to see."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from itertools import islice

from msgspec.structs import replace

from holdfast.app import Holdfast
from holdfast.model.job import Job
from holdfast.model.workers import MOST_RUNNING, RunningJob, WorkerInfo
from holdfast.observe import Observer
from holdfast.operations.draining import FOLLOWED_EVERY, forget_drained, is_drained
from holdfast.operations.publisher import Publisher
from holdfast.operations.workers import announce
from holdfast.runtime.host import memory
from holdfast.runtime.version import __version__
from holdfast.store import Store
from holdfast.worker.slots import Slots


class Announcer:
    """Announces a worker again and again, and reports a store that does not notify it."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        info: Callable[[], WorkerInfo],
        app: Holdfast,
        slots: Slots,
    ) -> None:
        self._store = store
        self._observer = observer
        self._info = info
        self._app = app
        self._slots = slots

    async def announce(self) -> None:
        """Announce the worker once, unless that fails: claims fail and report it as well."""
        with contextlib.suppress(Exception):
            await announce(self._store, self._described())

    def _described(self) -> WorkerInfo:
        """The worker with its version, memory and jobs."""
        running = islice(self._slots.running.values(), MOST_RUNNING)
        return replace(
            self._info(),
            version=__version__,
            app_version=self._app.version,
            memory=memory(),
            running_jobs=tuple(_running(run.job) for run in running),
            draining=self._slots.draining,
            announced_at=self._store.now(),
        )

    async def _follow_drain(self) -> None:
        """Stop claiming, or claim again, as an operator wants."""
        drained = await is_drained(self._store, self._info().id)
        if drained != self._slots.draining:
            self._slots.hold(draining=drained)
            self._observer.emit("worker.drained" if drained else "worker.undrained")
            await self.announce()

    async def publish(self) -> None:
        """Publish what the tasks and queues of this worker declare."""
        info = self._info()
        publisher = Publisher(self._store, info.id, info.started_at)
        registry = self._app.registry
        await publisher.publish_tasks(registry, info.queues)
        await publisher.publish_profiles(registry.profiles)
        if not registry.internal:
            await publisher.publish_crons(self._app.crons)

    async def leave(self) -> None:
        """Remove the announcement."""
        with contextlib.suppress(Exception):  # it expires
            await announce(self._store, self._info(), timedelta(0))
            if self._slots.draining:
                await forget_drained(self._store, self._info().id)

    async def run(self) -> None:
        """Announce the worker until cancelled."""
        reported = before = ""
        while True:
            await asyncio.sleep(FOLLOWED_EVERY)
            await self.announce()
            with contextlib.suppress(Exception):  # a worker of other code may be gone
                await self.publish()
            with contextlib.suppress(Exception):
                await self._follow_drain()
            reason = self._store.not_notified_because
            if reason and reason == before and reason != reported:  # it lasts
                self._observer.emit("store.not_notified", error=reason)
                reported = reason
            before = reason


def _running(job: Job) -> RunningJob:
    return RunningJob(job_id=job.id, type=job.type, queue=job.queue, since=job.started_at)
