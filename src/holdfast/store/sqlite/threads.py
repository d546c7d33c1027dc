"""Where blocking calls run: in a thread of their own, or, in a simulation, on the loop itself.

The only place of the store that knows threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Protocol, TypeVarTuple

Arguments = TypeVarTuple("Arguments")


class WriterThread(Protocol):
    """Runs calls one after the other, in the order given."""

    def post(self, call: Callable[[], None]) -> None:
        """Run a call that never raises, soon."""
        ...

    def stop(self) -> None:
        """Take no more calls; return once those given have run."""
        ...


class ThreadLane:
    """A lane on its own thread. It does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, call: Callable[[], None]) -> None:
        self._calls.put(call)

    def stop(self) -> None:
        self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def emit(
    loop: asyncio.AbstractEventLoop, call: Callable[[*Arguments], object], *arguments: *Arguments
) -> None:
    """Run a call on a loop, from any thread; a loop that is closed has nobody left to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


class InlineLane:
    """A lane on the running event loop: calls block it, and their order is the loop's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def post(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)

    def stop(self) -> None:
        pass
