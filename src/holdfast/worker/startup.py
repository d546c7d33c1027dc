"""Starting to work although the store may be away just now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from holdfast.app import Holdfast
from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.observe import Outage
from holdfast.runtime.backoff import GrowingDelay
from holdfast.store import Store


@contextlib.asynccontextmanager
async def opened(
    app: Holdfast, stopping: asyncio.Event, outage: Outage
) -> AsyncGenerator[Store, None]:
    """Start an app, waiting for its store as long as nobody wants to stop, and close it again.

    What parts of a worker have to say about the store they say as one.
    """
    await _start(app, stopping, outage)
    try:
        yield app.store
    except ExceptionGroup as several:
        raise _of_the_store(several) or several from None
    finally:
        await app.close()


async def _start(app: Holdfast, stopping: asyncio.Event, outage: Outage) -> None:
    pauses = GrowingDelay(app.randomness)
    while True:
        try:
            await app.start()
        except StoreUnavailableError as error:
            outage.failed(error)
            if stopping.is_set():
                raise
            await pause_unless(stopping, pauses.next())
        else:
            outage.over()
            return


async def pause_unless(stopping: asyncio.Event, seconds: float) -> None:
    """Wait, but not for one who is to stop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


def _of_the_store(several: ExceptionGroup[Exception]) -> Exception | None:
    """The first of several errors, if they are all the store's."""
    errors, others = several.split(StoreError)
    if errors is None or others is not None:
        return None
    first: Exception = errors
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return first
