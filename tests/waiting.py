"""Waiting for what nothing announces, and for nothing at all."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

T = TypeVar("T")

PATIENCE = 15.0
"""Seconds; a busy machine may be slow, and only a failure waits for all of them."""


async def eventually(
    look: Callable[[], T | Awaitable[T]], *, within: float = PATIENCE, every: float = 0.01
) -> T:
    """Look again and again until there is something, and return it; ``TimeoutError`` if not.

    For what happens in another process or behind a verb that has no event for it.
    """
    async with asyncio.timeout(within):
        while True:
            seen = look()
            found: T = await seen if inspect.isawaitable(seen) else seen
            if found:
                return found
            await asyncio.sleep(every)  # between two looks: nothing announces it


def in_time(look: Callable[[], T], *, within: float = PATIENCE, every: float = 0.01) -> T:
    """Look again and again, where there is no event loop."""
    deadline = time.monotonic() + within
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came within {within:g} s")
        time.sleep(every)  # between two looks: nothing announces it
    return found


async def forever() -> NoReturn:
    """Wait until cancelled."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")
