"""Where the heartbeat beats: in a thread of its own, or on the worker's loop for a store that
lives there (memory, simulations).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.model.profiles import RENEWALS_PER_LEASE
from holdfast.observe import Observer
from holdfast.store import Store
from holdfast.worker.custody import Custody
from holdfast.worker.heartbeat import LOOK_EVERY, Heartbeat
from holdfast.worker.run import Run

SHORT_LEASE = timedelta(seconds=LOOK_EVERY * RENEWALS_PER_LEASE)
RESTART_SECONDS = 1.0
LONGEST_FAREWELL = 5.0


class Pulse:
    """Keeps a heartbeat going for as long as a worker runs."""

    def __init__(
        self, app: Holdfast, running: Mapping[str, Run], observer: Observer, custody: Custody
    ) -> None:
        self._app = app
        self._running = running
        self._observer = observer
        self._custody = custody
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._stopped = False

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Start beating."""
        loop = asyncio.get_running_loop()
        if self._app.shares_store:
            self._loop = loop
            group.create_task(self._beat(self._heartbeat(self._app.store, loop)))
            return
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._beat_apart(loop)), name="holdfast-pulse", daemon=True
        )
        self._thread.start()

    def heed(self, runs: Sequence[Run]) -> None:
        """Hear of new jobs: one with a short lease cannot wait for the next look."""
        if any(ttl < SHORT_LEASE for ttl in {run.job.lease_ttl for run in runs}):
            self._wake()

    async def stop(self) -> None:
        """Stop beating."""
        self._stopped = True
        self._wake()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, LONGEST_FAREWELL)

    def _wake(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    async def _beat_apart(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        """Beat in this thread's own loop over a connection of its own, come what may."""
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        while not self._stopped:
            store = self._app.open_store()
            try:
                await store.start()
                await self._beat(self._heartbeat(store, worker_loop))
            except Exception as error:  # noqa: BLE001  # leases depend on it: tell, begin anew
                self._observer.tell("heartbeat.missed", error=str(error), leases=len(self._running))
                await self._nap(RESTART_SECONDS)
            finally:
                await store.close()

    async def _beat(self, heartbeat: Heartbeat) -> None:
        while not self._stopped:
            self._woken.clear()
            await self._nap(await heartbeat.once())

    async def _nap(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _heartbeat(self, store: Store, loop: asyncio.AbstractEventLoop) -> Heartbeat:
        return Heartbeat(
            store,
            lambda: list(self._running.values()),
            self._app.clock,
            self._observer,
            lambda heard: loop.call_soon_threadsafe(heard),  # noqa: PLW0108  # a plain signature
            self._custody,
        )
