"""The event loop of a process that is ours alone: a worker's, a server's."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")

YOUNG = 10_000
"""Objects that are made before the garbage collector looks at them; every job takes a few."""


def run(main: Coroutine[object, object, T]) -> T:
    """Run a coroutine on uvloop where it is installed (the extra ``speed``), else on asyncio.

    What was imported so far stays, and the garbage collector need not look at it ever again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    return _runner()(main)


def _runner() -> Callable[[Coroutine[object, object, T]], T]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run
