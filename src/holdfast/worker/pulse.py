"""Where the heartbeat beats: in a thread of its own, or on the worker's loop for a store that
lives there (memory, simulations).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from holdfast.app import Holdfast
from holdfast.errors import StoreError
from holdfast.observe import Observer
from holdfast.store import Store
from holdfast.worker.heartbeat import Heartbeat, beat
from holdfast.worker.run import Run

RESTART_SECONDS = 1.0


class Pulse:
    """Keeps a heartbeat going for as long as a worker runs."""

    def __init__(self, app: Holdfast, running: Mapping[str, Run], observer: Observer) -> None:
        self._app = app
        self._running = running
        self._observer = observer
        self._thread: threading.Thread | None = None
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Start beating."""
        loop = asyncio.get_running_loop()
        if self._app.shares_store:
            heartbeat = self._heartbeat(self._app.store, loop)
            group.create_task(beat(heartbeat, self._stopping))
            return
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._beat_apart(loop)), name="holdfast-pulse", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """Stop beating."""
        self._stopping.set()
        if self._thread is not None and self._thread_loop is not None:
            self._thread_loop.call_soon_threadsafe(self._thread_stop.set)
            await asyncio.to_thread(self._thread.join, 5.0)

    async def _beat_apart(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        """Beat in this thread's own loop over a connection of its own, come what may."""
        self._thread_stop = asyncio.Event()
        self._thread_loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            store = self._app.open_store()
            try:
                await store.start()
                await beat(self._heartbeat(store, worker_loop), self._thread_stop)
            except StoreError as error:
                self._observer.tell("heartbeat.missed", error=str(error), leases=len(self._running))
                await asyncio.sleep(RESTART_SECONDS)
            finally:
                await store.close()

    def _heartbeat(self, store: Store, loop: asyncio.AbstractEventLoop) -> Heartbeat:
        return Heartbeat(
            store,
            lambda: list(self._running.values()),
            self._app.clock,
            self._observer,
            lambda heard: loop.call_soon_threadsafe(heard),  # noqa: PLW0108  # a plain signature
        )
