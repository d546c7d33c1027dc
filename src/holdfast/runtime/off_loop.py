"""Runs long computations beside the event loop, and short ones at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SHORT = 65_536
"""Bytes whose reading takes less than a switch of threads is worth."""


BREAK = 0.001
"""Seconds in which the event loop serves what has been waiting."""


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Return what ``work`` returns; in a thread when it reads many bytes."""
    return work() if size <= SHORT else await asyncio.to_thread(work)


def take_a_break() -> None:
    """Let the event loop run between two long steps of a thread, each of which holds the GIL.

    A request needs several turns of the loop. Without a break, each may wait for one more step.
    """
    time.sleep(BREAK)
