"""Watches the keys of open streams and long waits, so that they end with their key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.http.api_keys import ApiKeys
from holdfast.http.permissions import Caller

INTERVAL = 0.4
"""Seconds between two reads of the keys while something waits: below half a second, so that a
stream ends within a second although a read takes a while."""


class KeyWatch:
    """One reader of the keys for any number of waiting calls."""

    def __init__(
        self, keys: ApiKeys, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._keys = keys
        self._pause = pause
        self._waiting: dict[asyncio.Future[None], str] = {}
        self._task: asyncio.Task[None] | None = None

    async def ended(self, caller: Caller) -> None:
        """Wait until the key of a caller is revoked or expires.

        A caller without a key ends when the first key is created.
        """
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = caller.key_id
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            await future
        finally:
            del self._waiting[future]

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch(self) -> None:
        while self._waiting:
            await self._pause(INTERVAL)
            try:
                await self._keys.refresh(max_age=INTERVAL)
            except Exception:  # noqa: BLE001, S112  # an outage: the keys are judged after it
                continue
            valid = {key_id: self._keys.holds(key_id) for key_id in set(self._waiting.values())}
            for future, key_id in self._waiting.items():
                if not valid[key_id] and not future.done():
                    future.set_result(None)
