"""An app, and if wanted a worker, inside another program's event loop: what lifespans share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.observe.logging import LogObserver
from holdfast.worker import Worker


@contextlib.asynccontextmanager
async def embedded(
    app: Holdfast,
    *,
    worker: bool = False,
    queues: Sequence[str] | Mapping[str, float] = ("default",),
    slots: int = 20,
    grace: timedelta = timedelta(seconds=10),
) -> AsyncIterator[Holdfast]:
    """Open an app for the length of a block; with ``worker``, run its jobs here, too.

    At the end running jobs have ``grace`` to finish; the rest return to their queue. Keep it
    below the time that the server has for its own shutdown.
    """
    async with app:
        if not worker:
            yield app
            return
        observer = LogObserver(app.redaction)
        started = Worker(app, queues=queues, slots=slots, grace=grace, observer=observer)
        working = asyncio.get_running_loop().create_task(started.run())

        def report(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()):
                observer.emit("worker.failed", worker=started.id, error=repr(error))

        working.add_done_callback(report)  # at once, not when the server stops
        try:
            yield app
        finally:
            started.stop()
            await asyncio.wait([working])
