"""Resources of a worker process: entered before its first job, left after its last one.

Each event loop that runs jobs has its own, because connections belong to the loop that opened
them: a worker's loop, also for its threads, and the loop of each child process.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar, cast

from holdfast.errors import Fault, ValidationError

Lifespan = Callable[..., Any]
"""An async generator function, or a function that returns an async context manager."""
F = TypeVar("F", bound=Lifespan)
LEAVE_SECONDS = 30.0
"""How long the end of all lifespan functions may take, in seconds."""


class _Opened:
    """The resources of one loop, and how many users they have."""

    def __init__(self) -> None:
        self.values: dict[Lifespan, object] = {}
        self.stack = AsyncExitStack()
        self.users = 0
        self.lock = asyncio.Lock()


class Resources:
    """The lifespan functions of an app, and what they yielded in each loop."""

    def __init__(self, overrides: Mapping[Lifespan, Lifespan]) -> None:
        self.functions: list[Lifespan] = []
        self._overrides = overrides
        self._opened: dict[asyncio.AbstractEventLoop, _Opened] = {}

    def add(self, function: Lifespan) -> None:
        """Add a lifespan function; ValidationError when it cannot be one."""
        if not callable(function) or inspect.iscoroutinefunction(function):
            message = f"must be an async generator function, got {function!r:.80}"
            raise ValidationError([Fault("lifespan", "INVALID", message)])
        self.functions.append(function)

    @asynccontextmanager
    async def opened(self, app: object) -> AsyncGenerator[None, None]:
        """Hold all resources of the running loop; the last user leaves them, newest first."""
        if not self.functions:
            yield
            return
        loop = asyncio.get_running_loop()
        mine = self._opened.setdefault(loop, _Opened())
        mine.users += 1
        try:
            async with mine.lock:
                await self._enter(mine, app)
            yield
        finally:
            mine.users -= 1
            if not mine.users:
                del self._opened[loop]
                await _left(mine.stack)

    async def _enter(self, mine: _Opened, app: object) -> None:
        for function in self.functions:
            if function not in mine.values and function not in self._overrides:
                manager = managed(function, app)
                mine.values[function] = await mine.stack.enter_async_context(manager)

    def value(self, function: Lifespan, loop: asyncio.AbstractEventLoop | None) -> object:
        """Return what a lifespan function yielded in a loop; KeyError when it is not open."""
        opened = self._opened.get(loop) if loop is not None else None
        if opened is None:
            raise KeyError(function)
        return opened.values[function]


async def _left(stack: AsyncExitStack) -> None:
    """Leave resources; one that takes too long is cancelled, and TimeoutError names the limit."""
    try:
        async with asyncio.timeout(LEAVE_SECONDS):
            await stack.aclose()
    except TimeoutError as error:
        message = f"the lifespan functions did not end within {LEAVE_SECONDS:g} s"
        raise TimeoutError(message) from error


def managed(function: Lifespan, app: object) -> AbstractAsyncContextManager[object]:
    """Return the context manager of a lifespan function: called with the app if it takes one."""
    arguments = (app,) if inspect.signature(function).parameters else ()
    if inspect.isasyncgenfunction(function):
        made = asynccontextmanager(cast("Callable[..., AsyncIterator[object]]", function))
        return made(*arguments)
    manager = function(*arguments)
    if not isinstance(manager, AbstractAsyncContextManager):
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"lifespan {name} must yield once, or return an async context manager")
    return cast("AbstractAsyncContextManager[object]", manager)
