"""BullMQ's own queues and schedulers: finding the ones, advancing the others."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from holdfast.store.redis.fields import (
    EPOCH,
    MICROSECOND,
    parsed,
)
from holdfast.store.redis.params import pack

if TYPE_CHECKING:
    from holdfast.store.redis.store import RedisStore

STEP = 1000
EVERY = 5
"""Calls of ``promote`` for one step of the walk."""
_MAGIC = "*?[]\\^"


class Explorer:
    """Walks over the keys of a prefix for queues nobody has told this store of."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._cursor = 0
        self._calls = 0
        self._start = f"{store.settings.prefix}:"
        escaped = "".join(f"\\{c}" if c in _MAGIC else c for c in self._start)
        self._pattern = f"{escaped}*:meta"

    async def all(self) -> list[str]:
        """Meet every queue; return why some cannot be shared: a version we do not know."""
        strange = await self._meet()
        while self._cursor:
            strange += await self._meet()
        return strange

    async def step(self) -> None:
        """Look at some keys now and then; a queue that cannot be shared becomes a warning."""
        self._calls += 1
        if self._calls % EVERY == 0:
            for why in await self._meet():
                self._store.warn(why)

    async def _meet(self) -> list[str]:
        words = ("SCAN", self._cursor, "MATCH", self._pattern, "COUNT", STEP)
        cursor, keys = await self._store.client.command(*words)
        self._cursor = int(cursor)
        found = (key.decode("utf-8", "replace")[len(self._start) : -len(":meta")] for key in keys)
        names = [name for name in found if name and ":" not in name]
        if not names:
            return []
        strangers = await self._store.call("meet", pack(names))
        return [why.decode("utf-8", "replace") for why in strangers]


MILLISECOND = 1000 * MICROSECOND


async def advance(store: RedisStore, queue: str, scheduler: str, job: str, options: bytes) -> bool:
    """Make the next job of a scheduler; False when the schedule ends or cannot be read."""
    key = store.keys.queue(queue, f"repeat:{scheduler}")
    answer = await store.client.command("HGETALL", key)
    if isinstance(answer, list):
        answer = dict(zip(answer[::2], answer[1::2], strict=True))
    plan = {name.decode(): value.decode("utf-8", "replace") for name, value in answer.items()}
    if "ic" not in plan:
        return False
    given = parsed(options)
    repeat = given.get("repeat") if isinstance(given, dict) else None
    count = repeat.get("count", 1) if isinstance(repeat, dict) else 1
    now = (store.now() - EPOCH) // MILLISECOND
    previous = int(job.rpartition(":")[2])
    following = next_time(plan, previous=previous, count=int(count), now=now)
    if following is None:
        if plan.get("pattern") and not _is_readable(plan):
            store.warn(f"queue {queue}: scheduler {scheduler} stops, its pattern is not understood")
        return False
    next_options = _options(plan, scheduler, following, count=int(count) + 1, now=now)
    made = await store.call("advance", queue, scheduler, job, following, next_options)
    return bool(made)


def next_time(plan: Mapping[str, str], *, previous: int, count: int, now: int) -> int | None:
    """Return when a schedule comes round next, in milliseconds; None when it is over."""
    limit, end = plan.get("limit"), plan.get("endDate")
    if (limit and count + 1 > int(limit)) or (end and now > int(float(end))):
        return None
    if every := int(plan.get("every") or 0):
        following = previous + every
        if following >= now:
            return following
        offset = int(plan.get("offset") or previous % every)
        return (now - offset) // every * every + every + offset
    return _next_match(plan, max(previous, now))


def _is_readable(plan: Mapping[str, str]) -> bool:
    return _next_match(plan, 0) is not None


def _next_match(plan: Mapping[str, str], after: int) -> int | None:
    try:
        zone = ZoneInfo(plan.get("tz") or "UTC")
        start = datetime.fromtimestamp(after / 1000, zone)
        match = next(CronSim(plan.get("pattern", ""), start))
    except (CronSimError, StopIteration, OSError, ValueError, KeyError):
        return None
    return int((match.astimezone(UTC) - EPOCH) // MILLISECOND)


def _options(plan: Mapping[str, str], scheduler: str, at: int, *, count: int, now: int) -> bytes:
    template = parsed(plan.get("opts", "{}").encode())
    repeat: dict[str, object] = {"count": count}
    for name in ("every", "limit", "endDate", "startDate"):
        if plan.get(name):
            repeat[name] = int(float(plan[name]))
    for name in ("pattern", "tz"):
        if plan.get(name):
            repeat[name] = plan[name]
    return msgspec.json.encode(
        {
            "attempts": 0,
            **(template if isinstance(template, dict) else {}),
            "repeatJobKey": scheduler,
            "jobId": f"repeat:{scheduler}:{at}",
            "repeat": repeat,
            "timestamp": now,
            "delay": max(0, at - now),
            "prevMillis": at,
        }
    )
