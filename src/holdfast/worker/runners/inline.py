"""Coroutine handlers, on the worker's own event loop."""

from __future__ import annotations

from collections.abc import Coroutine

from holdfast.worker.executor import Outcome, perform
from holdfast.worker.run import Run


class AsyncRunner:
    """Awaits the handler; cancelling it cancels the handler."""

    def run(self, run: Run) -> Coroutine[object, None, Outcome]:
        wanted = run.handler.signature.context is not None
        return perform(run.handler, run.job, run.context if wanted else None)

    async def close(self) -> None:
        pass
