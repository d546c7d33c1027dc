"""What stores report about themselves: whether, as they are set up, they keep jobs safely."""

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
    """The result of one check of a store."""

    name: str
    """What was checked, one short word: ``durability``, ``schema``, ``clock``."""
    level: Level
    text: str
    """The result, in one sentence."""
    advice: str = ""
    """What to do about it, commands in backticks; empty when nothing needs doing."""
    queue: str = ""
    """The queue that it is about."""
    type: str = ""
    """The type of the jobs that it is about."""


TOLERABLE_SKEW = timedelta(seconds=1)


def clock_finding(server: datetime, here: datetime) -> Finding:
    """Compare a server's time, by which jobs are due, with this machine's."""
    skew = server - here
    apart = abs(skew).total_seconds()
    if abs(skew) <= TOLERABLE_SKEW:
        text = f"The server's clock and this machine's are {apart:.3f} s apart."
        return Finding("clock", Level.OK, text)
    return Finding(
        "clock",
        Level.WARN,
        f"The server's clock is {apart:.1f} s {'ahead of' if skew > timedelta(0) else 'behind'}"
        " this machine's; jobs are due and leases end by the server's.",
        "Synchronise both machines with NTP.",
    )
