"""Where handlers run: on the event loop, in threads, in processes of their own."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from holdfast.worker.executor import Outcome
from holdfast.worker.run import Run


class Runner(Protocol):
    """Runs the handler of one job.

    Cancelling whoever awaits it stops the code as far as the kind of runner can: a coroutine is
    cancelled, a process is killed, a thread is fenced off and left behind. Either way the
    call returns promptly.
    """

    def run(self, run: Run) -> Awaitable[Outcome]:
        """Call the handler and say how it went."""
        ...

    async def close(self) -> None:
        """Stop everything that is left."""
        ...


__all__ = ["Runner"]
