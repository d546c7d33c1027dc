"""One event loop in a thread of its own for all its users in a process; it ends with the last."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any


class SharedLoop:
    """Runs coroutines where handlers that block another loop cannot stop them.

    A forked child starts a thread of its own.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
        """Run a coroutine, with one more user until it has ended."""
        with self._lock:
            if self._loop is None:
                self._loop = self._start()
            self._users += 1
            loop = self._loop
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        future.add_done_callback(lambda _: self._leave(loop))
        return future

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if loop is self._loop:
                self._users -= 1
                if not self._users:
                    self._loop = None
                    loop.call_soon_threadsafe(loop.stop)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True).start()
        return loop

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop = None
        self._users = 0


def _run(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop()
        loop.run_forever()
