"""The event loop of a process that runs nothing else: a worker's, a server's."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import TypeVar

from holdfast.runtime.exit import ExitGuard

T = TypeVar("T")

YOUNG = 10_000
"""New objects before a garbage collection; every job allocates a few."""


def run(main: Coroutine[object, object, T]) -> T:
    """Run a coroutine on uvloop where it is installed (the extra ``speed``), else on asyncio.

    The garbage collector ignores everything imported so far: it stays anyway. The process exits
    a few seconds after the coroutine ends, even if a task refuses to be cancelled.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    guard = ExitGuard()
    try:
        return _runner()(_guarded(main, guard))
    finally:
        guard.disarm()


async def _guarded(main: Coroutine[object, object, T], guard: ExitGuard) -> T:
    try:
        return await main
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            guard.arm([task.get_name() for task in left])


def _runner() -> Callable[[Coroutine[object, object, T]], T]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run
