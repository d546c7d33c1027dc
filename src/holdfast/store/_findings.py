"""What a store reports about its own set-up, for the people who run it."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARN = "warn"
    """Works, but promises less than it could."""
    ERROR = "error"
    """Jobs can be lost, or the store cannot be used."""


class Finding(msgspec.Struct, frozen=True):
    """One thing a store found out about itself."""

    name: str
    """What was looked at, one short word: ``durability``, ``schema``, ``clock``."""
    level: Level
    text: str
    """What is so, in one sentence."""
    advice: str = ""
    """What to do about it; empty when there is nothing to do."""


TOLERABLE_SKEW = timedelta(seconds=1)


def clock_finding(server: datetime, here: datetime) -> Finding:
    """Compare a server's time, by which jobs are due, with this machine's time of day."""
    skew = server - here
    apart = abs(skew).total_seconds()
    if abs(skew) <= TOLERABLE_SKEW:
        return Finding("clock", Level.OK, f"The server's clock and ours are {apart:.3f} s apart.")
    return Finding(
        "clock",
        Level.WARN,
        f"The server's clock is {apart:.1f} s {'ahead of' if skew > timedelta(0) else 'behind'}"
        " this machine's; jobs are due and leases end by the server's.",
        "Let both machines keep time with NTP.",
    )
