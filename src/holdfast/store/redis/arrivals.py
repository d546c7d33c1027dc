"""Waiting for work on BullMQ's markers.

A marker is a member of a sorted set that whoever makes a job ready leaves there; taking it out
wakes exactly one worker, which leaves another one when more is ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from holdfast.store.redis.client import Client
from holdfast.store.redis.keys import Keys

LONGEST = timedelta(seconds=5)
"""One blocking call at most; a connection that hangs is noticed that soon."""


class Arrivals:
    """A number that moves when there may be work."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._number = 0
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Move the number, and wake who waits in this process."""
        self._number += 1
        self._rung.set()
        self._rung = asyncio.Event()

    async def wait(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        """Return the number once it differs from ``seen``, or after ``wait``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait.total_seconds()
        while self._number == seen and (left := deadline - loop.time()) > 0:
            await self._once(queues, min(left, LONGEST.total_seconds()))
        return self._number

    async def _once(self, queues: Sequence[str], seconds: float) -> None:
        """Block on the markers until one is there, somebody here rings, or time is up."""
        popped = asyncio.ensure_future(self._pop(queues, seconds))
        heard = asyncio.ensure_future(self._rung.wait())
        try:
            await asyncio.wait({popped, heard}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard.cancel()
            if not popped.done():
                popped.cancel()
            await asyncio.wait({popped, heard})
        if not popped.cancelled():
            popped.result()

    async def _pop(self, queues: Sequence[str], seconds: float) -> None:
        if not queues:
            await asyncio.sleep(seconds)
            return
        markers = [self._keys.queue(queue, "marker") for queue in queues]
        answer = await self._client.blocking(
            timedelta(seconds=seconds),
            *("BZPOPMIN", *markers, f"{max(seconds, 0.001):.3f}"),
            name=self._keys.client_name(queues[0]),
        )
        if answer is not None:
            self.ring()
