"""Where blocking calls run: in a thread of their own, or, in a simulation, on the loop itself.

The only module of the store that uses threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Protocol, TypeVarTuple

Arguments = TypeVarTuple("Arguments")


class SerialExecutor(Protocol):
    """Runs calls one after the other, in the order given."""

    def post(self, call: Callable[[], None]) -> None:
        """Run a call, which never raises, soon."""
        ...

    def stop(self) -> None:
        """Accept no more calls; return once those posted have run."""
        ...


class ThreadExecutor:
    """An executor with its own thread, which does not keep the process alive."""

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


def call_on(
    loop: asyncio.AbstractEventLoop, call: Callable[[*Arguments], object], *arguments: *Arguments
) -> None:
    """Run a call on a loop, from any thread; do nothing if the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


class LoopExecutor:
    """An executor on the running event loop: calls block it, and the loop orders them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def post(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)

    def stop(self) -> None:
        pass
