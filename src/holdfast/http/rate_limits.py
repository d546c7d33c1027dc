"""Limits of one key: requests per second, and unfinished jobs at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from holdfast.errors import QuotaError, StoreUnavailableError
from holdfast.http.permissions import Caller
from holdfast.model.policy import SECOND
from holdfast.operations.owned_jobs import live_jobs
from holdfast.runtime.clock import Clock
from holdfast.store import Store

MAX_KEYS = 10_000
LONGEST = 40.0
"""How many seconds a submission may wait for others: longer than the timeout of submissions."""
HELD_FOR = timedelta(seconds=3)
"""How long a server that dies keeps other submissions of a key from counting."""
RENEWED_EVERY = 1.0
"""Seconds between two renewals while a submission counts and writes."""
LOOK_AGAIN = 0.01
"""Seconds until a server looks again whether another one has written."""


class _KeyUse(msgspec.Struct):
    allowance: float
    filled_at: float
    counting: asyncio.Lock


class KeyLimits:
    """Counts what each key uses in this process; raises QuotaError above its limit."""

    def __init__(self, store: Store, clock: Clock, holder: str) -> None:
        self._holder = holder
        self._store = store
        self._clock = clock
        self._uses: OrderedDict[str, _KeyUse] = OrderedDict()

    def admit(self, caller: Caller) -> None:
        """Count one request; a token bucket holds the requests of one second."""
        if caller.rate is None:
            return
        use, now, rate = self._use(caller), self._clock.monotonic(), caller.rate
        use.allowance = min(rate, use.allowance + (now - use.filled_at) * rate)
        use.filled_at = now
        if use.allowance < 1:
            raise QuotaError(
                "requests per second",
                current=rate,
                maximum=rate,
                retry_after=timedelta(seconds=(1 - use.allowance) / rate),
            )
        use.allowance -= 1

    @asynccontextmanager
    async def counting(self, caller: Caller) -> AsyncIterator[None]:
        """Let one submission of a key with a limit count and write at a time, on all servers.

        StoreUnavailableError when another one takes too long.
        """
        if caller.live_jobs is None:
            yield
            return
        async with self._use(caller).counting:
            name = f"quota:{caller.key_id}"
            await self._acquire(name)
            renewing = asyncio.create_task(self._renew(name))
            try:
                yield
            finally:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
                await self._store.lock(name, self._holder, timedelta(0))

    async def _renew(self, name: str) -> None:
        while True:
            await asyncio.sleep(RENEWED_EVERY)
            with contextlib.suppress(StoreUnavailableError):
                await self._store.lock(name, self._holder, HELD_FOR)

    async def _acquire(self, name: str) -> None:
        deadline = self._clock.monotonic() + LONGEST
        while not await self._store.lock(name, self._holder, HELD_FOR):
            if self._clock.monotonic() > deadline:
                raise StoreUnavailableError("other submissions of this key take too long")
            await asyncio.sleep(LOOK_AGAIN)

    async def admit_jobs(self, caller: Caller, count: int) -> None:
        """Raise QuotaError when there is no room for new jobs; called while ``counting``."""
        if caller.live_jobs is None or not count:
            return
        live = await live_jobs(self._store, caller.key_id)
        if live + count > caller.live_jobs:
            raise QuotaError(
                "unfinished jobs of this key",
                current=live,
                maximum=caller.live_jobs,
                retry_after=SECOND,
            )

    def _use(self, caller: Caller) -> _KeyUse:
        use = self._uses.get(caller.key_id)
        if use is None:
            use = self._uses[caller.key_id] = _KeyUse(
                caller.rate or 0, self._clock.monotonic(), asyncio.Lock()
            )
            if len(self._uses) > MAX_KEYS:
                self._uses.popitem(last=False)
        return use
