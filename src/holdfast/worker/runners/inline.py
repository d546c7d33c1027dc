"""Coroutine handlers, on the worker's own event loop."""

from __future__ import annotations

from holdfast.worker.execution import Outcome, perform
from holdfast.worker.run import Run


class AsyncRunner:
    """Awaits the handler; cancelling it cancels the handler."""

    async def run(self, run: Run) -> Outcome:
        wanted = run.handler.signature.context is not None
        return await perform(run.handler, run.job, run.context if wanted else None)

    async def close(self) -> None:
        pass
