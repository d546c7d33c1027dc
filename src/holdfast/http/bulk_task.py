"""Runs operations on many jobs in the service, so that they need no worker."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.app import Holdfast
from holdfast.errors import StoreUnavailableError
from holdfast.observe import Observer
from holdfast.operations.bulk_runner import EVERY, BulkRunner
from holdfast.runtime.backoff import GrowingDelay
from holdfast.store.damage import described

IDLE = 2.0
"""Seconds between two looks while nothing was started here."""
LONGEST_DELAY = 5.0
"""The longest delay after an error, in seconds."""


class BulkTask:
    """The background task of one service."""

    def __init__(self, app: Holdfast, observer: Observer) -> None:
        self._runner = BulkRunner(app.store, f"service-{app.randomness.token()}", observer)
        self._observer = observer
        self._delay = GrowingDelay(app.randomness, longest=LONGEST_DELAY)
        self._started = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for operations."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Look now: an operation was started."""
        self._started.set()

    async def close(self) -> None:
        """Stop; another process resumes what is left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                delay = await self._runner.once()
                self._delay.over()
            except Exception as error:  # noqa: BLE001  # it is tried again
                delay = self._delay.next()
                if not isinstance(error, StoreUnavailableError):
                    self._observer.emit(
                        "maintenance.failed", service=self._runner.name, error=described(error)
                    )
            self._started.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE if delay == EVERY else delay):
                    await self._started.wait()
