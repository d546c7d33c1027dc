"""How long a worker may wait for work: nobody rings when a rate limit opens again."""

from __future__ import annotations

from datetime import timedelta

from holdfast.clock import Clock
from holdfast.store import LimitState, Store

POLL = timedelta(seconds=2)
"""How long a worker trusts that it would be told of new work."""

SHORTEST = timedelta(milliseconds=1)


class Rates:
    """Remembers for a while that there are no rate limits, and else looks which are closed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_until = float("-inf")

    async def patience(self, store: Store) -> timedelta:
        """Return how long to wait unless told of work: until the next closed limit opens."""
        now = self._clock.monotonic()
        if now < self._free_until:
            return POLL
        limits = [limit for limit in await store.limits() if limit.rule.rate is not None]
        if not limits:
            self._free_until = now + POLL.total_seconds()
            return POLL
        opens = [limit.until - store.now() for limit in limits if limit.until and _is_closed(limit)]
        return max(SHORTEST, min([POLL, *opens]))


def _is_closed(limit: LimitState) -> bool:
    return limit.rule.rate is not None and limit.started >= limit.rule.rate
