"""Reads the next page while the caller works on the present one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def ahead(pages: AsyncGenerator[T, None]) -> AsyncIterator[T]:
    """Yield what another iterator yields, which reads the next page meanwhile."""
    reading = asyncio.ensure_future(anext(pages, None))
    try:
        while (page := await reading) is not None:
            reading = asyncio.ensure_future(anext(pages, None))
            yield page
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await pages.aclose()
