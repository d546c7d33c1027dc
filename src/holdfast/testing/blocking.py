"""Blocking calls inside a sandbox: from plain tests, handlers and threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.operations.interface import OperationsBackend
from holdfast.operations.sync import SyncOperations

if TYPE_CHECKING:
    from holdfast.app import Holdfast

T = TypeVar("T")


class BlockingBridge:
    """Runs coroutines for blocking callers, whether or not an event loop runs in their thread."""

    def __init__(self) -> None:
        self._owner = threading.get_ident()
        self._runner: asyncio.Runner | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        if loop_runs_here():
            return _run_in_thread(coroutine)
        if threading.get_ident() != self._owner:
            return asyncio.run(coroutine)
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)

    def close(self) -> None:
        """Close the event loop, if one was opened."""
        if self._runner is not None:
            self._runner.close()


class SandboxOperations(SyncOperations):
    """``app.sync`` while its app is in a sandbox."""

    def __init__(self, app: Holdfast, bridge: BlockingBridge) -> None:
        super().__init__(app)
        self._sandboxed = app
        self._bridge = bridge

    def close(self) -> None:
        """Do nothing: the sandbox closes the bridge."""

    def _run(self, operate: Callable[[OperationsBackend], Coroutine[Any, Any, T]]) -> T:
        return self._bridge.run(operate(self._sandboxed.over(self._sandboxed.store)))


def loop_runs_here() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on its own loop in a new thread, and block this thread until it ends."""
    results: list[T] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            results.append(context.run(asyncio.run, coroutine))
        except BaseException as error:  # noqa: BLE001  # the caller raises it
            errors.append(error)

    thread = threading.Thread(target=work, name="holdfast-sandbox", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
