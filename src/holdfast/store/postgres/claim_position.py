"""Where the ready jobs of a queue begin, so that a claim need not walk over those long gone.

While any transaction is open, anywhere on the server, the index entries of claimed jobs cannot
be cleaned up, and every claim from the front would pass over all of them: after a million jobs,
a second each time. So a claim starts where the jobs stood a moment ago. The same goes for leases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

import msgspec

LEVELS = range(5)
SETTLED_AFTER = 0.25
"""Seconds after which jobs that took an earlier place are taken to have been committed."""
FULL_EVERY = 1.0
"""Seconds between claims from the very front, for those that had not, at least."""
LEASES_SETTLED = timedelta(seconds=1)
"""How long after its end a lease is looked for, unless the look is from the very front."""

MOST_KINDS = 1_000
"""How many kinds of claims are remembered."""

Types = tuple[str, ...] | None


class ClaimPosition(NamedTuple):
    """A stretch of the ready jobs: one level of a queue, as one kind of claim sees it."""

    queue: str
    level: int
    types: Types


class QueuePosition(msgspec.Struct):
    """The first place seen, and the first place seen a moment before that."""

    settled: int
    newest: int
    since: float


class ClaimPositions:
    """What claims have seen so far."""

    def __init__(self) -> None:
        self._heads: dict[ClaimPosition, QueuePosition] = {}
        self._full_at: dict[tuple[tuple[str, ...], Types], float] = {}

    def start(self, queues: Sequence[str], types: Types, ticks: float) -> list[int] | None:
        """The place to start from for each queue and level; None when a full look is due."""
        if ticks >= self._full_at.get((tuple(queues), types), 0.0):
            return None
        return [
            self._settled(ClaimPosition(queue, n, types), ticks) for queue in queues for n in LEVELS
        ]

    def looked(self, queues: Sequence[str], types: Types, ticks: float, took: float) -> None:
        """Take note of a claim from the very front."""
        if len(self._full_at) >= MOST_KINDS:  # of claims: callers over HTTP choose queues and types
            self.forget()
        self._full_at[tuple(queues), types] = ticks + max(FULL_EVERY, SHARE * took)

    def saw(self, taken: Iterable[tuple[str, int, int]], types: Types, ticks: float) -> None:
        """Take note of the jobs a claim got: queue, level and place of each."""
        last_first = sorted(taken, reverse=True)
        for (queue, level), first in {each[:2]: each[2] for each in last_first}.items():
            place = ClaimPosition(queue, level, types)
            head = self._heads.get(place)
            if head is None:
                self._heads[place] = QueuePosition(0, first, ticks)
            elif ticks - head.since >= SETTLED_AFTER:
                self._heads[place] = QueuePosition(head.newest, first, ticks)

    def forget(self) -> None:
        """Start from the front again: jobs may have moved there."""
        self._heads.clear()
        self._full_at.clear()

    def _settled(self, place: ClaimPosition, ticks: float) -> int:
        head = self._heads.get(place)
        if head is None:
            return 0
        return head.newest if ticks - head.since >= SETTLED_AFTER else head.settled


class LeasePosition:
    """Where the leases begin that may have ended without an answer."""

    def __init__(self) -> None:
        self._first: datetime | None = None
        self._full_at = 0.0

    def start(self, ticks: float) -> datetime | None:
        """The earliest end to look for; None when a full look is due, which is usual."""
        return None if ticks >= self._full_at else self._first

    def looked(self, first: datetime | None, now: datetime) -> None:
        """Take note of a look at an instant: the first end it left to be seen again, if any."""
        settled = now - LEASES_SETTLED
        self._first = settled if first is None else min(first, settled)

    def looked_at_all(self, ticks: float, took: float) -> None:
        """Take note of a full look; only when it took long will the next ones be shorter."""
        self._full_at = ticks + SHARE * took


T = TypeVar("T")

SHARE = 20
"""A piece of it rests for this many times as long as it took."""


class Throttle:
    """When to do something next: not too often, and never for most of the time."""

    def __init__(self, ticks: Callable[[], float], every: float = 0.0) -> None:
        self._ticks = ticks
        self._every = every
        self._next = 0.0
        self._took = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it may be done now."""
        return self._ticks() >= self._next

    async def keep(self, work: Awaitable[T]) -> T:
        """Await it, and take note of how long that took."""
        begun = self._ticks()
        self._next = begun + self._every  # for others, and should it fail
        done = await work
        ended = self._ticks()
        self._took = ended - begun
        self._next = ended + max(self._every, SHARE * self._took)
        return done

    def hurry(self) -> None:
        """Hear that much of it was left undone: it then rests for no longer than it took."""
        self._next = self._ticks() + self._took
