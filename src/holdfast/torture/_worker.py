"""A worker process of a run: ``python -m holdfast.torture._worker``."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import timedelta

from holdfast.runtime.event_loop import run
from holdfast.torture._tasks import app, plan
from holdfast.torture.ledger import EVENTS, Ledger
from holdfast.torture.processes import exit_with_parent
from holdfast.worker import Worker
from holdfast.worker.supervisor.supervisor import supervise

GRACE = timedelta(seconds=10)
COUNTED = frozenset(
    {"job.stale", "job.lease_lost", "job.reaped", "heartbeat.missed", "store.unavailable"}
    | {"maintenance.leading", "process.died"}
)


class EventRecorder:
    """Records the events of workers that a run must have caused."""

    def __init__(self) -> None:
        self._ledger = Ledger(plan.folder, EVENTS)

    def emit(self, event: str, **fields: object) -> None:
        """Record an event, if it counts."""
        if event in COUNTED:
            self._ledger.write(event)


async def run_worker() -> None:
    """Run a worker until a signal stops it."""
    worker = Worker(
        app,
        queues=plan.queues,
        slots=plan.slots,
        grace=GRACE,
        name=plan.name,
        observer=EventRecorder(),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.stop)
    await worker.run()


def main() -> int:
    """Run one worker, or a supervisor with several."""
    if plan.processes:
        return supervise(
            "holdfast.torture._tasks:app",
            processes=plan.processes,
            queues=plan.queues,
            slots=plan.slots,
            grace=GRACE,
            observer="holdfast.torture._worker:EventRecorder",
        )
    run(run_worker())
    return 0


if __name__ == "__main__":
    exit_with_parent()
    sys.exit(main())
