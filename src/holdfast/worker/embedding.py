"""A worker beside other code of the same loop: in a web server, a notebook or a test."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from types import TracebackType
from typing import Self


class Embedded:
    """``async with worker:`` runs a worker in the background until the block ends."""

    def __init__(self) -> None:
        self.is_ready = asyncio.Event()
        """Set when the worker has started and is about to claim its first jobs."""
        self._background: asyncio.Task[None] | None = None

    @abstractmethod
    async def run(self, *, burst: bool = False) -> None:
        """Work until stopped or, in a burst, until no job is left."""

    @abstractmethod
    def drain(self) -> None:
        """Stop claiming and let running jobs finish within the grace period."""

    @abstractmethod
    def halt(self) -> None:
        """Stop claiming and return running jobs to the queue at once."""

    async def __aenter__(self) -> Self:
        """Start the worker and its app, and return when both are ready.

        Raise what keeps it from starting, and RuntimeError for a second use.
        """
        if self._background is not None:
            raise RuntimeError("a worker runs once: make another one")
        self._background = asyncio.create_task(self.run(), name="holdfast-worker")
        ready = asyncio.ensure_future(self.is_ready.wait())
        try:
            await asyncio.wait({self._background, ready}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._stop()
            raise
        finally:
            ready.cancel()
        if self._background.done():
            await self._background
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let running jobs finish within the grace period; after an exception, return them."""
        if error is None:
            self.drain()
            await self._wait()
        else:
            await self._stop()

    async def _stop(self) -> None:
        self.halt()
        await self._wait()

    async def _wait(self) -> None:
        """Wait for the worker; a cancellation of the wait returns its jobs first."""
        assert self._background is not None
        try:
            await asyncio.shield(self._background)
        except asyncio.CancelledError:
            if self._background.done():
                raise
            self.halt()
            await self._background
            raise
