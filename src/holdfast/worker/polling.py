"""How long an idle worker waits: nothing wakes it when a rate limit opens again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.model.job import State
from holdfast.operations.dependents import release_dependents
from holdfast.runtime.clock import Clock
from holdfast.store import LimitRule, LimitState, Search, Store
from holdfast.tasks.registry import Reach

POLL = timedelta(seconds=2)
"""The longest an idle worker waits for a wake-up."""

FIRST_POLL = timedelta(milliseconds=250)
"""The longest it waits right after work or a wake-up: the worker that was woken for the next job
may have died, and a claim may have skipped a job that another transaction had locked."""

EASING = 4
"""The wait grows to this part of the time without work: a fourth."""

SHORTEST = timedelta(milliseconds=1)

GATHERING = timedelta(milliseconds=20)
"""The longest it waits for more than one start of a rate, so that one claim takes several."""
FAST = timedelta(milliseconds=10)
"""Starts that are closer together may become possible while the worker reads the limits."""
MOST_MISSES = 8


class PollDelay:
    """Computes the wait of an idle worker.

    It remembers for a while that there are no rate limits, and reads them again after that.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unlimited_until = float("-inf")
        self._awaited: tuple[float, datetime] | None = None
        self._misses = 0
        self._looked_again: float | None = None
        self.last_work = float("-inf")
        """When the worker last had work or a wake-up; the worker sets it."""

    async def next(self, store: Store) -> timedelta:
        """Return how long to wait for a wake-up, at most until the next used up rate has room."""
        now = self._clock.monotonic()
        if now < self._unlimited_until:
            return self._eased(now)
        limits = [limit for limit in await store.limits() if limit.rule.rate is not None]
        if not limits:
            self._unlimited_until = now + POLL.total_seconds()
            return self._eased(now)
        used_up = {limit.until: limit for limit in limits if limit.until}
        if not used_up:
            again = max(SHORTEST, *map(_gathering, limits))
            return again if self._looks_again(limits) else self._eased(now)
        until = min(used_up)
        wait = until - store.now() + self._spacing(used_up[until].rule, until)
        return max(SHORTEST, min(self._eased(now), wait))

    def _looks_again(self, limits: Sequence[LimitState]) -> bool:
        """Whether a rate may have had no room for the claim before, and has some now; once."""
        if self._looked_again == self.last_work:
            return False
        waited = self._awaited is not None and self._awaited[0] == self.last_work
        self._looked_again = self.last_work
        return waited or any(limit.started or _turn(limit.rule) < FAST for limit in limits)

    def _spacing(self, rule: LimitRule, until: datetime) -> timedelta:
        """Return how long to wait after a start is possible.

        A worker waits for half a burst: the other half makes up for coming late. Each time that
        another worker took the start it waited for, it leaves out more turns: of many idle
        workers only a few come for each start.
        """
        turn = _turn(rule)
        half = max(0, (rule.burst or 1) // 2 - 1)
        if self._awaited is not None and self._awaited[0] == self.last_work:
            self._misses = min(MOST_MISSES, self._misses + (until > self._awaited[1]))
        else:
            self._misses = 0
        self._awaited, self._looked_again = (self.last_work, until), None
        return min(GATHERING, half * turn) + min(POLL, ((1 << self._misses) - 1) * turn)

    def _eased(self, now: float) -> timedelta:
        idle = min(now - self.last_work, EASING * POLL.total_seconds())
        return max(FIRST_POLL, timedelta(seconds=idle / EASING))


def _gathering(limit: LimitState) -> timedelta:
    """Return how long until half of a burst is free, as far as it is worth to wait for that."""
    missing = limit.started - (limit.rule.burst or 1) // 2 - 1
    return min(GATHERING, max(0, missing) * _turn(limit.rule))


def _turn(rule: LimitRule) -> timedelta:
    return rule.per / max(1, rule.rate or 1)


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
