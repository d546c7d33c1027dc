"""Where the ready jobs of a queue begin, so that a claim skips the index entries of claimed jobs.

While any transaction is open, anywhere on the server, those entries cannot be vacuumed, and a
claim from the front passes over all of them: after a million jobs, a second each time. So a claim
starts where the first jobs stood a moment ago. The same holds for leases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

import msgspec

T = TypeVar("T")
Types = tuple[str, ...] | None

LEVELS = range(5)
SETTLED_AFTER = 0.25
"""Seconds after which jobs that took an earlier place are assumed to be committed."""
FULL_EVERY = 1.0
"""Least seconds between claims from the very front, for jobs that committed later than that."""
LEASES_SETTLED = timedelta(seconds=1)
"""How long after its end a lease is looked for, except in a full scan."""
MAX_CLAIM_KINDS = 1_000
"""How many combinations of queues and types are remembered: HTTP callers choose them."""
REST_FACTOR = 20
"""Work that took so many seconds rests for this many times as long."""


class ClaimPosition(NamedTuple):
    """One level of a queue, as claims of some types see it."""

    queue: str
    level: int
    types: Types


class QueuePosition(msgspec.Struct):
    """The first place seen, and the first place seen a moment before that."""

    settled: int
    newest: int
    since: float


class ClaimPositions:
    """The places at which earlier claims found the first job."""

    def __init__(self) -> None:
        self._positions: dict[ClaimPosition, QueuePosition] = {}
        self._full_at: dict[tuple[tuple[str, ...], Types], float] = {}

    def start(self, queues: Sequence[str], types: Types, ticks: float) -> list[int] | None:
        """Return the place to start from per queue and level; None when a full scan is due."""
        if ticks >= self._full_at.get((tuple(queues), types), 0.0):
            return None
        return [
            self._settled(ClaimPosition(queue, n, types), ticks) for queue in queues for n in LEVELS
        ]

    def record_full_scan(
        self, queues: Sequence[str], types: Types, ticks: float, took: float
    ) -> None:
        """Record a claim from the very front."""
        if len(self._full_at) >= MAX_CLAIM_KINDS:
            self.reset()
        self._full_at[tuple(queues), types] = ticks + max(FULL_EVERY, REST_FACTOR * took)

    def record(self, claimed: Iterable[tuple[str, int, int]], types: Types, ticks: float) -> None:
        """Record queue, level and place of claimed jobs."""
        last_first = sorted(claimed, reverse=True)
        for (queue, level), first in {each[:2]: each[2] for each in last_first}.items():
            key = ClaimPosition(queue, level, types)
            position = self._positions.get(key)
            if position is None:
                self._positions[key] = QueuePosition(0, first, ticks)
            elif ticks - position.since >= SETTLED_AFTER:
                self._positions[key] = QueuePosition(position.newest, first, ticks)

    def reset(self) -> None:
        """Start from the front again: jobs may have moved there."""
        self._positions.clear()
        self._full_at.clear()

    def _settled(self, key: ClaimPosition, ticks: float) -> int:
        position = self._positions.get(key)
        if position is None:
            return 0
        return position.newest if ticks - position.since >= SETTLED_AFTER else position.settled


class LeasePosition:
    """Where the leases begin that may have ended without an outcome."""

    def __init__(self) -> None:
        self._first: datetime | None = None
        self._full_at = 0.0

    def start(self, ticks: float) -> datetime | None:
        """Return the earliest end to look for; None when a full scan is due, the usual case."""
        return None if ticks >= self._full_at else self._first

    def record(self, first: datetime | None, now: datetime) -> None:
        """Record a scan at an instant: the first end that must be seen again, if any."""
        settled = now - LEASES_SETTLED
        self._first = settled if first is None else min(first, settled)

    def record_full_scan(self, ticks: float, took: float) -> None:
        """Record a full scan; the next ones are partial only if it took long."""
        self._full_at = ticks + REST_FACTOR * took


class Throttle:
    """Limits how often work runs, and which share of the time it takes."""

    def __init__(self, ticks: Callable[[], float], every: float = 0.0) -> None:
        self._ticks = ticks
        self._every = every
        self._next = 0.0
        self._took = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the work may run now."""
        return self._ticks() >= self._next

    async def run(self, work: Awaitable[T]) -> T:
        """Await the work and measure how long it takes."""
        begun = self._ticks()
        self._next = begun + self._every  # for concurrent callers, and if it fails
        done = await work
        ended = self._ticks()
        self._took = ended - begun
        self._next = ended + max(self._every, REST_FACTOR * self._took)
        return done

    def continue_soon(self) -> None:
        """Rest for no longer than the work took: much of it is left."""
        self._next = self._ticks() + self._took
