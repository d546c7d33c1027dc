"""Starting to work although the store may be away just now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from holdfast.app import Holdfast
from holdfast.errors import StoreUnavailableError
from holdfast.observe import Observer
from holdfast.pauses import Pauses
from holdfast.store import Store


@contextlib.asynccontextmanager
async def opened(
    app: Holdfast, stopping: asyncio.Event, observer: Observer
) -> AsyncGenerator[Store, None]:
    """Start an app, waiting for its store as long as nobody wants to stop, and close it again."""
    await _start(app, stopping, observer)
    try:
        yield app.store
    finally:
        await app.close()


async def _start(app: Holdfast, stopping: asyncio.Event, observer: Observer) -> None:
    pauses = Pauses(app.chance)
    while True:
        try:
            await app.start()
        except StoreUnavailableError as error:
            observer.tell("store.unavailable", error=str(error))
            if stopping.is_set():
                raise
            await pause_unless(stopping, pauses.next())
        else:
            return


async def pause_unless(stopping: asyncio.Event, seconds: float) -> None:
    """Wait, but not for one who is to stop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
