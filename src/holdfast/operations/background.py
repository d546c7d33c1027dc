"""Runs the client operations for blocking code: one event loop in a background thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, Protocol, TypeVar

from holdfast.model.results import SubmissionResult
from holdfast.model.submission import Submission
from holdfast.operations.interface import OperationsBackend
from holdfast.runtime.importing import check_not_importing
from holdfast.webhooks import Webhooks

T = TypeVar("T")
Part = TypeVar("Part")
EXIT_TIMEOUT = 2.0
"""How many seconds the end of the program may take to close what the caller left open."""
Home = tuple[asyncio.AbstractEventLoop, OperationsBackend]
"""OperationsBackend and the event loop they run on."""


class Opener(Protocol):
    """An app, or a client of a service."""

    @property
    def home(self) -> Home | None:
        """OperationsBackend that blocking callers must use, with their loop."""
        ...

    async def open_operations(self) -> OperationsBackend:
        """Open another connection to the same store or service."""
        ...

    def webhooks_over(self, operations: OperationsBackend) -> Webhooks:
        """Return the webhooks of that store or service."""
        ...


class BackgroundOperations:
    """Owns the event loop of the blocking operations and the thread it runs in."""

    def __init__(self, app: Opener) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._operations: OperationsBackend | None = None
        self._pid = 0

    def close(self) -> None:
        """Close the store and end the background thread; a later call opens them again."""
        with self._lock:
            loop, operations = self._loop, self._operations
            self._loop = self._operations = None
        if loop is not None and operations is not None and self._pid == os.getpid():
            _call(loop, operations.close())
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    def run(self, operate: Callable[[OperationsBackend], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine over the operations where they run, and wait for its result."""
        return self._run(operate)

    def _run(self, operate: Callable[[OperationsBackend], Coroutine[Any, Any, T]]) -> T:
        loop, operations = self._app.home or self._open()
        return _call(loop, operate(operations))

    def _submit(self, submission: Submission, connection: object) -> SubmissionResult:
        """Submit in this thread if the store can; that saves two switches of threads."""
        if connection is None and self._operations is not None and self._pid == os.getpid():
            result = self._operations.submit_now(submission)
            if result is not None:
                return result
        return self._run(lambda operations: operations.submit(submission, connection=connection))

    def _iterate(self, operate: Callable[[OperationsBackend], AsyncIterator[T]]) -> Iterator[T]:
        stream: AsyncIterator[T] | None = None

        async def following(operations: OperationsBackend) -> T | None:
            nonlocal stream
            stream = stream or operate(operations)
            return await anext(stream, None)

        while (item := self._run(following)) is not None:
            yield item

    def _open(self) -> Home:
        with self._lock:
            if self._loop is None or self._operations is None or self._pid != os.getpid():
                check_not_importing()
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=loop.run_forever, name="holdfast-sync", daemon=True
                )
                self._thread.start()
                self._operations = _call(loop, self._app.open_operations())
                self._loop, self._pid = loop, os.getpid()
                weakref.finalize(self, _close_at_exit, loop, self._operations, self._pid)
            return self._loop, self._operations


class BlockingRun(Protocol):
    """Blocks until a coroutine over the operations is done."""

    def __call__(self, operate: Callable[[OperationsBackend], Coroutine[Any, Any, T]]) -> T: ...


class Background(Generic[Part]):
    """Runs a part of the operations, such as those on webhooks, where those on jobs run."""

    def __init__(self, run: BlockingRun, over: Callable[[OperationsBackend], Part]) -> None:
        self._run_operations = run
        self._over = over

    def _run(self, operate: Callable[[Part], Coroutine[Any, Any, T]]) -> T:
        return self._run_operations(lambda operations: operate(self._over(operations)))


def _close_at_exit(
    loop: asyncio.AbstractEventLoop, operations: OperationsBackend, pid: int
) -> None:
    """Close the store as the interpreter exits, unless that takes too long."""
    if loop.is_running() and pid == os.getpid():
        closing = asyncio.run_coroutine_threadsafe(operations.close(), loop)
        with contextlib.suppress(Exception):
            closing.result(EXIT_TIMEOUT)


def _call(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    here = None
    with contextlib.suppress(RuntimeError):
        here = asyncio.get_running_loop()
    if here is loop:
        coroutine.close()
        raise RuntimeError("app.sync would block the event loop it needs: await the app's own")
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        raise
