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
Scopes = frozenset[str]
NO_SCOPES: Scopes = frozenset()

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
BLOCKED_REST_FACTOR = 40
"""The same for reading jobs behind limits again, which costs something while nothing happens."""


class ClaimKind(NamedTuple):
    """Claims that look for the same jobs: of these types, but for those behind full limits."""

    queues: tuple[str, ...]
    types: Types
    full: Scopes = NO_SCOPES


class QueuePosition(msgspec.Struct):
    """The first place seen, and the first place seen a moment before that."""

    settled: int
    newest: int
    since: float


class ClaimScan(NamedTuple):
    """A scan of ready jobs: from which place per queue and level, or None from the very front."""

    kind: ClaimKind
    starts: list[int] | None


class ClaimPositions:
    """The places at which earlier claims found the first job."""

    def __init__(self) -> None:
        self._positions: dict[tuple[ClaimKind, str, int], QueuePosition] = {}
        self._full_at: dict[ClaimKind, float] = {}
        self._passed: dict[tuple[tuple[str, ...], Types], Scopes] = {}
        """Limits that were full when a scan passed over their jobs."""

    def scan(self, queues: Sequence[str], types: Types, full: Scopes, ticks: float) -> ClaimScan:
        """Return where to start.

        Jobs that an earlier scan passed over are passed over again if the same limits are full.
        """
        asked = tuple(queues), types
        passed = self._passed.get(asked)
        kind = ClaimKind(*asked, passed if full and passed and passed <= full else full)
        if ticks >= self._full_at.get(kind, 0.0):
            return ClaimScan(ClaimKind(*asked, full), None)
        starts = [self._settled((kind, queue, n), ticks) for queue in queues for n in LEVELS]
        return ClaimScan(kind, starts)

    def record(
        self, scan: ClaimScan, places: Iterable[tuple[str, int, int]], begun: float, ended: float
    ) -> None:
        """Record what a scan found: queue, level and place of the first jobs."""
        kind = scan.kind
        if scan.starts is None:
            if len(self._full_at) >= MAX_CLAIM_KINDS:
                self.reset()
            rest = BLOCKED_REST_FACTOR if kind.full else REST_FACTOR
            self._full_at[kind] = ended + max(FULL_EVERY, rest * (ended - begun))
            if kind.full:
                self._forget_passed(kind)
        last_first = sorted(places, reverse=True)
        for (queue, level), first in {each[:2]: each[2] for each in last_first}.items():
            key = (kind, queue, level)
            position = self._positions.get(key)
            if position is None:
                self._positions[key] = QueuePosition(0, first, begun)
            elif begun - position.since >= SETTLED_AFTER:
                self._positions[key] = QueuePosition(position.newest, first, begun)

    def reset(self) -> None:
        """Start from the front again: jobs may have moved there."""
        self._positions.clear()
        self._full_at.clear()
        self._passed.clear()

    def _forget_passed(self, kind: ClaimKind) -> None:
        """Remember the jobs that a scan from the front passed over instead of earlier ones."""
        earlier = self._passed.get(kind[:2])
        self._passed[kind[:2]] = kind.full
        if earlier is not None and earlier != kind.full:
            gone = ClaimKind(*kind[:2], earlier)
            self._full_at.pop(gone, None)
            for queue in kind.queues:
                for level in LEVELS:
                    self._positions.pop((gone, queue, level), None)

    def _settled(self, key: tuple[ClaimKind, str, int], ticks: float) -> int:
        position = self._positions.get(key)
        if position is None:
            return 0
        return position.newest if ticks - position.since >= SETTLED_AFTER else position.settled


def passed(
    queues: Sequence[str], places: Sequence[tuple[str, int, int]], last: int, *, at_end: bool
) -> list[tuple[str, int, int]]:
    """Return how far a scan came that passed over jobs, for each queue and level it looked at.

    It read every level before the one of the last job that it took, and all of them at its end:
    there, up to the last place that was given before it began.
    """
    turns = [(queue, level) for queue in queues for level in LEVELS]
    first: dict[tuple[str, int], int] = {}
    for queue, level, place in places:
        first[queue, level] = min(place, first.get((queue, level), place))
    reached = len(turns) if at_end else max(map(turns.index, first), default=0)
    ends = [(*turn, last) for turn in turns[:reached]]
    return ends + [(*turn, first[turn]) for turn in turns[reached:] if turn in first]


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
