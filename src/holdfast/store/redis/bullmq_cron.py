"""Cron patterns of BullMQ's schedulers, read as its parser reads them.

Its patterns may be an alias, have fewer than five fields or one for seconds, and contain ``?``. A
pattern without a time zone means the local time of the worker.
"""

from __future__ import annotations

import functools
import os
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.store.redis.fields import EPOCH, MILLISECOND

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@minutely": "* * * * *",
    "@secondly": "* * * * * *",
    "@weekdays": "0 0 * * 1-5",
    "@weekends": "0 0 * * 0,6",
}
FIELDS = 5


def next_match(pattern: str, zone: str, after: int) -> int | None:
    """Return the first match after an instant, in milliseconds; None when there is none."""
    try:
        where = ZoneInfo(zone) if zone else local_zone()
        start = datetime.fromtimestamp(after / 1000, where)
        match = next(CronSim(_full(pattern), start))
        skipped = _skipped(_full(pattern), start, match)
    except (CronSimError, StopIteration, OSError, ValueError, KeyError):
        return None
    return int(((skipped or match).astimezone(UTC) - EPOCH) // MILLISECOND)


@functools.cache
def local_zone() -> tzinfo:
    """Return the time zone of this process, as Node finds it."""
    try:
        if name := os.environ.get("TZ", "").removeprefix(":"):
            return ZoneInfo(name)
        with Path("/etc/localtime").open("rb") as rules:
            return ZoneInfo.from_file(rules)
    except (OSError, ValueError, KeyError):
        return UTC


def _full(pattern: str) -> str:
    """Return a pattern with all its fields: missing ones are the first, and match everything."""
    fields = ALIASES.get(pattern, pattern).replace("?", "*").split()
    return " ".join(["*"] * (FIELDS - len(fields)) + fields)


def _skipped(pattern: str, start: datetime, match: datetime) -> datetime | None:
    """Return a match in an hour that summer time skips; BullMQ keeps its distance to midnight."""
    wall = next(CronSim(pattern, start.replace(tzinfo=None))).replace(tzinfo=start.tzinfo)
    after_gap = wall.astimezone(UTC).astimezone(start.tzinfo)
    is_skipped = after_gap.replace(tzinfo=None) != wall.replace(tzinfo=None)
    return after_gap if is_skipped and after_gap > match else None
