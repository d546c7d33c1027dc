"""The context managers around one call of a handler, sync and async ones mixed.

A coroutine handler awaits the async ones in its own task. A plain handler blocks for them while
the worker's loop runs them, with a copy of the thread's context variables that is copied back.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, Self, TypeVar, cast

T = TypeVar("T")

Block = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine elsewhere and blocks for its result."""


class Scope:
    """Enters context managers and leaves them in reverse, with the exception of the call.

    ``block`` runs the async parts of a plain function, ``loop`` is where they run; both None
    in a coroutine.
    """

    def __init__(
        self, block: Block | None = None, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._block = block
        self.loop = loop
        self._entered: list[tuple[object, tuple[str, str]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Keep nothing of its own."""

    @property
    def blocks(self) -> bool:
        """Whether it belongs to a plain function."""
        return self._block is not None

    async def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine: awaited here, or blocked for."""
        if self._block is None:
            return await coroutine
        return cast("T", self._block(coroutine))

    async def enter(self, manager: object, owner: tuple[str, str]) -> object:
        """Enter a context manager on behalf of its owner and return its value."""
        if isinstance(manager, AbstractAsyncContextManager) and not self._prefers_sync(manager):
            value: object = await self.wait(_entering(manager))
        elif isinstance(manager, AbstractContextManager):
            value = manager.__enter__()
        else:
            raise TypeError(
                f"{owner[0]} {owner[1]} must return a context manager, got {manager!r:.80}"
            )
        self._entered.append((manager, owner))
        return value

    async def leave(
        self, error: BaseException | None, changed: Callable[[BaseException, tuple[str, str]], None]
    ) -> BaseException | None:
        """Leave all, and return the exception that the call ends with.

        A manager that raises another exception replaces it; ``changed`` receives it with the
        owner. One that suppresses it changes nothing.
        """
        while self._entered:
            manager, owner = self._entered.pop()
            try:
                await self._exit(manager, error)
            except BaseException as raised:  # noqa: BLE001  # it becomes the outcome
                if raised is not error:
                    raised.__context__ = raised.__context__ or error
                    error = raised
                    changed(raised, owner)
        return error

    async def _exit(self, manager: object, error: BaseException | None) -> None:
        kind, trace = type(error) if error else None, error.__traceback__ if error else None
        if isinstance(manager, AbstractAsyncContextManager) and not self._prefers_sync(manager):
            await self.wait(_exiting(manager, error))
        elif isinstance(manager, AbstractContextManager):
            manager.__exit__(kind, error, trace)

    def _prefers_sync(self, manager: object) -> bool:
        return self.blocks and isinstance(manager, AbstractContextManager)


async def _entering(manager: AbstractAsyncContextManager[Any]) -> object:
    return cast("object", await manager.__aenter__())


async def _exiting(
    manager: AbstractAsyncContextManager[Any], error: BaseException | None
) -> object:
    kind, trace = type(error) if error else None, error.__traceback__ if error else None
    return await manager.__aexit__(kind, error, trace)


def carried(coroutine: Coroutine[Any, Any, T], run: Block) -> T:
    """Run a coroutine elsewhere; what it sets in context variables is set here, too."""
    there = contextvars.copy_context()

    async def within() -> T:
        loop = asyncio.get_running_loop()
        return await loop.create_task(coroutine, context=there)

    try:
        return cast("T", run(within()))
    finally:
        for variable in there:
            if variable.get(_UNSET) is not (value := there[variable]):
                variable.set(value)


_UNSET: Any = object()


class OwnLoopScope(Scope):
    """A scope for plain functions outside of workers: a loop in a thread, started if needed."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        super().__init__(self._run)

    def __exit__(self, *_: object) -> None:
        if self._thread is not None and self.loop is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self.loop.run_forever, name="holdfast-scope", daemon=True
            )
            self._thread.start()
        return carried(coroutine, partial(_run_on, self.loop))


def _run_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, with or without a running event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise RuntimeError("this call cannot wait")
