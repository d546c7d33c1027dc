"""The arithmetic of rate limits, in whole numbers: GCRA, the generic cell rate algorithm.

Every start moves one instant ahead by ``per / rate``: the arrival, when all past starts would be
paid for at an even pace. Jobs start while it is less than ``burst`` starts ahead of the clock.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import Fault
from holdfast.model.times import shown

MOST = 1_000_000
"""The most of any number of a limit."""
SHORTEST, LONGEST = 1_000, 31 * 86_400 * 1_000_000
"""Microseconds of the shortest and the longest period."""
LONGEST_BURST = 366 * 86_400 * 1_000_000
"""Microseconds in which the starts of a whole burst are due one by one; a date must hold them."""
MINUTE = 60_000_000
SHARE = 10
"""By default one start more than the first comes at once for every ten of the rate."""


def default_burst(rate: int) -> int:
    """Return how many of a rate may start at once: one, and a tenth of the rate.

    So at most ten per cent more than the rate start in any period, and workers that come late
    by less than a tenth of it lose nothing.
    """
    return 1 + rate // SHARE


def largest_burst(rate: int, per: int) -> int:
    """Return how many may start at once at most, whatever the burst."""
    return max(1, min(MOST, LONGEST_BURST * rate // per))


class StartPace(msgspec.Struct, frozen=True):
    """So many starts per period, and how many of them may come at once.

    In any period at most ``rate + burst - 1`` start. How far the arrival is ahead of the clock is
    a debt, in parts of a microsecond: there are ``rate`` of them in one, so that no division
    leaves a remainder. A start costs ``per`` of them.
    """

    rate: int
    per: int
    """Microseconds."""
    burst: int

    def debt(self, started: int, ahead: int) -> int:
        """Return the debt that a store recorded, with its instant as microseconds from now.

        An arrival in the past is no debt. One that is further ahead than the burst, by more than
        a period or a minute, is none either: the clock was set back, or the rate was raised.
        Fewer starts than the rate are those of a window that ends at the instant: earlier
        versions record these.
        """
        if self.rate < 1:
            return 0
        if started < self.rate:
            found = ahead * self.rate - (self.rate - started) * self.per
        else:
            rest = started - self.rate
            found = ahead * self.rate + (rest if rest < self.rate else 0)
        return found if 0 < found <= self._most else 0

    def recorded(self, debt: int) -> tuple[int, int]:
        """Return what a store records: ``started``, and microseconds from now to its instant.

        For earlier versions this is a window that is full until the debt is paid.
        """
        ahead, rest = divmod(debt, self.rate)
        return self.rate + rest, ahead

    def room(self, debt: int) -> int:
        """Return how many may start now."""
        return self.burst - self.used(debt)

    def used(self, debt: int) -> int:
        """Return how many of the burst are used."""
        return min(self.burst, -(-debt // self.per)) if self.rate > 0 else self.burst

    def wait(self, debt: int, starts: int = 1) -> int | None:
        """Return the microseconds until so many may start; None: they never may."""
        if self.rate < 1:
            return None
        return max(0, -(((self.burst - starts) * self.per - debt) // self.rate))

    @property
    def _most(self) -> int:
        return self.burst * self.per + min(self.per, MINUTE) * self.rate


def limit_faults(
    *, concurrency: object, rate: object, burst: object, per: int | None
) -> list[Fault]:
    """Return every rule that the terms of a limit break; ``per`` None is judged elsewhere."""
    terms = {"concurrency": concurrency, "rate": rate, "burst": burst}
    faults = [
        Fault(name, "OUT_OF_RANGE", f"must be a whole number from 1 to {MOST}, got {shown(value)}")
        for name, value in terms.items()
        if value is not None
        and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST)
    ]
    if concurrency is None and rate is None:
        faults.append(Fault("concurrency", "REQUIRED", "give concurrency, rate, or both"))
    elif burst is not None and rate is None:
        faults.append(Fault("burst", "INVALID", "must come with a rate"))
    if per is not None and not SHORTEST <= per <= LONGEST:
        faults.append(Fault("per", "OUT_OF_RANGE", "must be from 1 ms to 31 days"))
    elif not faults and per and isinstance(rate, int) and isinstance(burst, int):
        most = largest_burst(rate, per)
        if burst > most:
            message = f"must be at most {most}: so many start within 366 days at this rate"
            faults.append(Fault("burst", "OUT_OF_RANGE", message))
    return faults
