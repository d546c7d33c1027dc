"""Divides long work on the event loop into slices, between which other tasks run."""

from __future__ import annotations

import asyncio

SLICE = 0.005
"""Seconds of work after which other tasks have their turn."""


class Pace:
    """Gives each of many short steps its turn; those of one pace may run in several tasks."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._began = float("-inf")

    async def turn(self) -> None:
        """Wait until the step may run: at once, unless those before it filled their slice."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now - self._began > SLICE:
                await asyncio.sleep(0)
                self._began = asyncio.get_running_loop().time()
