"""Where plain functions run: in threads, or in processes of their own."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from holdfast.worker.outcomes import Outcome
from holdfast.worker.run import Run


class Runner(Protocol):
    """Runs the handler of one job.

    Cancelling the task that awaits it stops the handler as far as the runner can: a process is
    killed, a thread is fenced off and abandoned. Either way the call returns promptly.
    """

    def run(self, run: Run) -> Awaitable[Outcome]:
        """Call the handler and return its outcome."""
        ...

    async def close(self) -> None:
        """Stop everything that still runs."""
        ...


__all__ = ["Runner"]
