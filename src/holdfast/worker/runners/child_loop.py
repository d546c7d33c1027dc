"""The event loop of a child process: it holds the resources of the apps between the jobs.

It runs in the main thread, which TERM interrupts, and only while something is awaited: for
coroutine handlers, and for the async middleware and resources of plain ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

from holdfast.app import Holdfast
from holdfast.tasks.scope import Scope, carried

T = TypeVar("T")


class ChildLoop:
    """Runs coroutines one after another on one loop."""

    def __init__(self, apps: Sequence[Holdfast]) -> None:
        self._apps = [app for app in apps if app.registry.seams.resources.functions]
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let an interrupted coroutine clean up, then leave the resources."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._runner.run(_ended(self._task))
        if self._apps:
            self._runner.run(self._stack.aclose())
        self._runner.close()

    @property
    def is_idle(self) -> bool:
        """Whether no coroutine runs, so that a plain function may block for one."""
        return not self._runner.get_loop().is_running()

    def open(self) -> None:
        """Enter the resources of the apps."""
        for app in self._apps:
            opened = app.registry.seams.resources.opened(app)
            self._runner.run(self._stack.enter_async_context(opened))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine; an exception of a signal handler leaves it to ``__exit__``."""
        return self._runner.run(self._kept(coroutine))

    def scope(self) -> Scope:
        """Return the scope of a plain function: its async parts run on this loop."""
        return Scope(self._block, self._runner.get_loop())

    def _block(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return carried(coroutine, self._runner.run)

    async def _kept(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._task = asyncio.current_task()
        return await coroutine


async def _ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
