"""Runs long computations beside the event loop, and short ones at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SHORT = 65_536
"""Bytes whose reading takes less than a switch of threads is worth."""


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Return what ``work`` returns; in a thread when it reads many bytes."""
    return work() if size <= SHORT else await asyncio.to_thread(work)
