"""Reports of changes of the store's clock, for the doctor."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from holdfast.model.clock_changes import TOLERANCE, ClockChange
from holdfast.model.reserved import CLOCK
from holdfast.operations.held import held
from holdfast.store import Finding, Level, Order, Search, Store

KEPT = timedelta(days=1)
"""How long the doctor reports a change."""
_HOLDER = "clock"
_NTP = "Let NTP slew the clock of the store's machine instead of setting it."


def described(change: ClockChange) -> str:
    """Return a change in words."""
    seconds = abs(change.by).total_seconds()
    return f"set {'forward' if change.by > timedelta(0) else 'back'} by {seconds:.0f} s"


async def report_change(store: Store, change: ClockChange) -> None:
    """Record that the store's clock was set."""
    with contextlib.suppress(Exception):  # the log has it as well
        await store.lock(CLOCK + "changed", _HOLDER, KEPT, described(change).encode())


async def clock_findings(store: Store) -> list[Finding]:
    """Return what shows that the store's clock was set."""
    found = [
        Finding(
            "clock",
            Level.WARN,
            f"The store's clock was {lock.data.decode('utf-8', 'replace')},"
            f" noticed {max(0.0, (store.now() - lock.until + KEPT).total_seconds()):.0f} s ago.",
            _NTP,
        )
        for lock in await held(store, CLOCK, KEPT)
    ]
    newest = (await store.find(Search(order=Order.UPDATED_DESC, limit=1))).jobs
    ahead = max((job.updated_at - store.now() for job in newest), default=timedelta(0))
    if ahead > TOLERANCE:
        text = f"The newest change in the store is dated {ahead.total_seconds():.0f} s in the"
        found.append(
            Finding("clock", Level.WARN, f"{text} future: its clock was set back since.", _NTP)
        )
    return found
