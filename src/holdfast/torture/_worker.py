"""A worker process of a run: ``python -m holdfast.torture._worker``."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import timedelta

from holdfast.runtime.event_loop import run
from holdfast.torture._tasks import app, post
from holdfast.torture.ledger import Ledger
from holdfast.torture.processes import die_with_parent
from holdfast.worker import Worker
from holdfast.worker.supervisor.supervisor import supervise

GRACE = timedelta(seconds=10)
COUNTED = frozenset(
    {"job.stale", "job.lease_lost", "job.reaped", "heartbeat.missed", "store.unavailable"}
    | {"maintenance.leading", "process.died"}
)


class Listener:
    """Writes down what workers tell and a run must have seen."""

    def __init__(self) -> None:
        self._ledger = Ledger(post.folder, "heard")

    def emit(self, event: str, **fields: object) -> None:
        """Hear of something."""
        if event in COUNTED:
            self._ledger.write(event)


async def alone() -> None:
    """Work until told to stop."""
    worker = Worker(
        app,
        queues=post.queues,
        slots=post.slots,
        grace=GRACE,
        name=post.name,
        observer=Listener(),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.stop)
    await worker.run()


def main() -> int:
    """Run one worker, or several under a supervisor."""
    if post.processes:
        return supervise(
            "holdfast.torture._tasks:app",
            processes=post.processes,
            queues=post.queues,
            slots=post.slots,
            grace=GRACE,
            observer="holdfast.torture._worker:Listener",
        )
    run(alone())
    return 0


if __name__ == "__main__":
    die_with_parent()
    sys.exit(main())
