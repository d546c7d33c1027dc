"""BullMQ's job schedulers: the worker that claims a scheduler's job makes the next one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from holdfast.store.redis.fields import EPOCH, MILLISECOND, pairs, parsed
from holdfast.store.redis.session import RedisSession


async def advance(
    session: RedisSession, queue: str, scheduler: str, job: str, options: bytes
) -> bool:
    """Make the next job of a scheduler; False when the schedule ends or cannot be read."""
    key = session.keys.queue(queue, f"repeat:{scheduler}")
    answer = await session.client.command("HGETALL", key)
    plan = {n.decode(): value.decode("utf-8", "replace") for n, value in pairs(answer).items()}
    if "ic" not in plan:
        return False
    given = parsed(options)
    repeat = given.get("repeat") if isinstance(given, dict) else None
    count = repeat.get("count", 1) if isinstance(repeat, dict) else 1
    now = (session.now() - EPOCH) // MILLISECOND
    previous = int(job.rpartition(":")[2])
    following = next_time(plan, previous=previous, count=int(count), now=now)
    if following is None:
        if plan.get("pattern") and not _is_readable(plan):
            session.warn(
                f"queue {queue}: scheduler {scheduler} stops, its pattern is not understood"
            )
        return False
    next_options = _options(plan, scheduler, following, count=int(count) + 1, now=now)
    made = await session.call("advance", queue, scheduler, job, following, next_options)
    return bool(made)


def next_time(plan: Mapping[str, str], *, previous: int, count: int, now: int) -> int | None:
    """Return when a schedule is next due, in milliseconds; None when it is over."""
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
