"""Limits of one key: requests per second, and unfinished jobs at a time."""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta

import msgspec

from holdfast.errors import QuotaError
from holdfast.http.permissions import Caller
from holdfast.model.job import LIVE
from holdfast.model.policy import SECOND
from holdfast.runtime.clock import Clock
from holdfast.store import Search, Store
from holdfast.store.tenants import OWNER

MAX_KEYS = 10_000
RECOUNT = 1.0
"""Seconds until the unfinished jobs of a key are counted again."""


class _KeyUse(msgspec.Struct):
    allowance: float
    filled_at: float
    live: int = 0
    counted_at: float = float("-inf")


class KeyLimits:
    """Counts what each key uses in this process; raises QuotaError above its limit."""

    def __init__(self, store: Store, clock: Clock) -> None:
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

    async def admit_jobs(self, caller: Caller, count: int) -> None:
        """Count new jobs; the unfinished ones are read from the store once a second."""
        if caller.live_jobs is None or not count:
            return
        use, now = self._use(caller), self._clock.monotonic()
        if now - use.counted_at >= RECOUNT:
            search = Search(tags={OWNER: caller.key_id}, states=tuple(LIVE), limit=1)
            use.live = (await self._store.find(search)).total
            use.counted_at = now
        if use.live + count > caller.live_jobs:
            raise QuotaError(
                "unfinished jobs of this key",
                current=use.live,
                maximum=caller.live_jobs,
                retry_after=SECOND,
            )
        use.live += count

    def give_back_jobs(self, caller: Caller, count: int) -> None:
        """Take back the count of jobs that were not written."""
        if caller.live_jobs is not None:
            self._use(caller).live -= count

    def _use(self, caller: Caller) -> _KeyUse:
        use = self._uses.get(caller.key_id)
        if use is None:
            use = self._uses[caller.key_id] = _KeyUse(caller.rate or 0, self._clock.monotonic())
            if len(self._uses) > MAX_KEYS:
                self._uses.popitem(last=False)
        return use
