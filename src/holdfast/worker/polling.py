"""How long a worker may wait for work: nobody rings when a rate limit opens again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.model.job import State
from holdfast.operations.dependents import release_dependents
from holdfast.runtime.clock import Clock
from holdfast.store import LimitState, Search, Store

POLL = timedelta(seconds=2)
"""How long a worker trusts at most that it would be told of new work."""

FIRST_POLL = timedelta(milliseconds=250)
"""How long when it had or was told of some just now: who was told of the next may have died, and
what it was told of may have been passed over because somebody had it locked."""

EASING = 4
"""A fourth of the time without work is how long it trusts by then."""

SHORTEST = timedelta(milliseconds=1)


class Rates:
    """Remembers for a while that there are no rate limits, and else looks which are closed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_until = float("-inf")
        self._stirred = float("-inf")

    def stirred(self) -> None:
        """Hear that there is work, or may be."""
        self._stirred = self._clock.monotonic()

    async def patience(self, store: Store) -> timedelta:
        """Return how long to wait unless told of work: until the next closed limit opens."""
        now = self._clock.monotonic()
        if now < self._free_until:
            return self._trust(now)
        limits = [limit for limit in await store.limits() if limit.rule.rate is not None]
        if not limits:
            self._free_until = now + POLL.total_seconds()
            return self._trust(now)
        opens = [limit.until - store.now() for limit in limits if limit.until and _is_closed(limit)]
        return max(SHORTEST, min([self._trust(now), *opens]))

    def _trust(self, now: float) -> timedelta:
        idle = min(now - self._stirred, EASING * POLL.total_seconds())
        return max(FIRST_POLL, timedelta(seconds=idle / EASING))


def _is_closed(limit: LimitState) -> bool:
    return limit.rule.rate is not None and limit.started >= limit.rule.rate


SOON = timedelta(milliseconds=10)
"""When what was found has to be waited for; whatever becomes ready rings before."""
PAGE = 1000


async def more_within(
    store: Store, queues: Sequence[str], types: Sequence[str]
) -> timedelta | None:
    """Return how long to wait for more work after a claim brought none; None: there is none."""
    promoted = await store.promote(PAGE)
    released = await release_dependents(store)  # what this or another promoter has just joined, too
    if released or promoted.count or promoted.has_dependents:
        return SOON
    paused = {queue.name for queue in await store.queues() if queue.paused}
    served = tuple(queue for queue in queues if queue not in paused)
    if not served or not types:
        return None
    ready = Search(queues=served, types=tuple(types), states=(State.SCHEDULED,), limit=1)
    return POLL if (await store.find(ready)).jobs else None
