"""Starting a worker while its store may be unavailable, and waiting until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from holdfast.app import Holdfast
from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.observe import Outage
from holdfast.runtime.backoff import GrowingDelay
from holdfast.store import Store
from holdfast.tasks.registry import Registry


@contextlib.asynccontextmanager
async def opened(
    app: Holdfast, stopping: asyncio.Event, outage: Outage
) -> AsyncGenerator[Store, None]:
    """Start an app, and close it at the end; wait for its store until ``stopping`` is set.

    Of several store errors that the body raises as a group, the first is raised instead.
    """
    await _start(app, stopping, outage)
    try:
        yield app.store
    except ExceptionGroup as errors:
        raise _store_error(errors) or errors from None
    finally:
        await app.close()


async def _start(app: Holdfast, stopping: asyncio.Event, outage: Outage) -> None:
    delay = GrowingDelay(app.randomness)
    while True:
        try:
            await app.start()
        except StoreUnavailableError as error:
            outage.failed(error)
            if stopping.is_set():
                raise
            await pause_unless(stopping, delay.next())
        else:
            outage.over()
            return


async def pause_unless(stopping: asyncio.Event, seconds: float) -> None:
    """Wait so many seconds, or until ``stopping`` is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


async def wait_unless(
    over: asyncio.Event, tasks: Sequence[asyncio.Task[None]], *, extra: float = 0.0
) -> None:
    """Wait for tasks until ``over`` is set, or ``extra`` seconds longer."""
    if not tasks:
        return
    is_over = asyncio.ensure_future(over.wait())
    all_ended = asyncio.ensure_future(asyncio.wait(tasks))
    await asyncio.wait({is_over, all_ended}, return_when=asyncio.FIRST_COMPLETED)
    if extra and not all_ended.done():
        await asyncio.wait({all_ended}, timeout=extra)
    is_over.cancel()
    all_ended.cancel()


async def declare_limits(store: Store, registry: Registry) -> None:
    """Write the limits that tasks declare."""
    for handler in registry:
        if handler.options.limit is not None:
            await store.limit(f"task:{handler.type}", handler.options.limit)
        if handler.options.key_limit is not None:
            await store.limit(f"key:{handler.type}", handler.options.key_limit)


def _store_error(errors: ExceptionGroup[Exception]) -> Exception | None:
    """The first of several errors, if all of them are store errors."""
    of_store, others = errors.split(StoreError)
    if of_store is None or others is not None:
        return None
    first: Exception = of_store
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return first
