"""The event loop of a process that runs nothing else: a worker's, a server's."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")

YOUNG = 10_000
"""New objects before a garbage collection; every job allocates a few."""


def run(main: Coroutine[object, object, T]) -> T:
    """Run a coroutine on uvloop where it is installed (the extra ``speed``), else on asyncio.

    The garbage collector ignores everything imported so far: it stays anyway.
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
