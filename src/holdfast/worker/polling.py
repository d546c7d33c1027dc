"""How long an idle worker waits: nothing wakes it when a rate limit opens again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.model.job import State
from holdfast.operations.dependents import release_dependents
from holdfast.runtime.clock import Clock
from holdfast.store import LimitState, Search, Store
from holdfast.tasks.registry import Reach

POLL = timedelta(seconds=2)
"""The longest an idle worker waits for a wake-up."""

FIRST_POLL = timedelta(milliseconds=250)
"""The longest it waits right after work or a wake-up: the worker that was woken for the next job
may have died, and a claim may have skipped a job that another transaction had locked."""

EASING = 4
"""The wait grows to this part of the time without work: a fourth."""

SHORTEST = timedelta(milliseconds=1)


class PollDelay:
    """Computes the wait of an idle worker.

    It remembers for a while that there are no rate limits, and reads them again after that.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unlimited_until = float("-inf")
        self.last_work = float("-inf")
        """When the worker last had work or a wake-up; the worker sets it."""

    async def next(self, store: Store) -> timedelta:
        """Return how long to wait for a wake-up, at most until the next closed limit opens."""
        now = self._clock.monotonic()
        if now < self._unlimited_until:
            return self._eased(now)
        limits = [limit for limit in await store.limits() if limit.rule.rate is not None]
        if not limits:
            self._unlimited_until = now + POLL.total_seconds()
            return self._eased(now)
        opens = [limit.until - store.now() for limit in limits if limit.until and _is_closed(limit)]
        return max(SHORTEST, min([self._eased(now), *opens]))

    def _eased(self, now: float) -> timedelta:
        idle = min(now - self.last_work, EASING * POLL.total_seconds())
        return max(FIRST_POLL, timedelta(seconds=idle / EASING))


def _is_closed(limit: LimitState) -> bool:
    return limit.rule.rate is not None and limit.started >= limit.rule.rate


SOON = timedelta(milliseconds=10)
"""How long to wait for jobs that were just promoted; a wake-up comes earlier."""
PAGE = 1000


async def more_within(store: Store, reach: Sequence[Reach]) -> timedelta | None:
    """Return how long to wait for more work after an empty claim; None when there is none."""
    promoted = await store.promote(PAGE)
    released = await release_dependents(store)  # also of what another process just promoted
    if released or promoted.count or promoted.has_dependents:
        return SOON
    paused = {queue.name for queue in await store.queues() if queue.paused}
    for queues, types in reach:
        served = tuple(queue for queue in queues if queue not in paused)
        ready = Search(queues=served, types=types or (), states=(State.SCHEDULED,), limit=1)
        if served and (await store.find(ready)).jobs:
            return POLL
    return None
