"""BullMQ's job schedulers: the worker that claims a scheduler's job makes the next one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.store.redis.bullmq_cron import next_match
from holdfast.store.redis.fields import EPOCH, MILLISECOND, pairs, parsed
from holdfast.store.redis.session import RedisSession

_NUMBERS = ("every", "limit", "endDate", "startDate")
_WORDS = ("pattern", "tz")


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
    current = given if isinstance(given, dict) else parsed(plan.get("opts", "{}").encode())
    repeat = current.get("repeat") if isinstance(current, dict) else None
    count = int(repeat.get("count", 1)) if isinstance(repeat, dict) else 1
    now = (session.now() - EPOCH) // MILLISECOND
    previous = int(job.rpartition(":")[2])
    following = next_time(plan, previous=previous, count=count, now=now)
    if following is None:
        if plan.get("pattern") and not _is_readable(plan):
            session.warn(
                f"queue {queue}: scheduler {scheduler} stops, its pattern is not understood"
            )
        return False
    next_options = {
        **_inherited(current),
        "repeatJobKey": scheduler,
        "jobId": f"repeat:{scheduler}:{following}",
        "repeat": _repeat(plan, repeat, count + 1),
        "timestamp": now,
        "delay": max(0, following - now),
        **({} if "every" in plan else {"prevMillis": following}),
    }
    encoded = msgspec.json.encode(next_options)
    made = await session.call("advance", queue, scheduler, job, following, encoded)
    return bool(made)


def next_time(plan: Mapping[str, str], *, previous: int, count: int, now: int) -> int | None:
    """Return when a schedule is next due, in milliseconds; None when it is over."""
    limit, end = plan.get("limit"), _number(plan, "endDate")
    if (limit and count + 1 > int(limit)) or (end and now > end):
        return None
    if every := _number(plan, "every"):
        following = previous + every
        if following >= now:
            return following
        aligned = now // every * every + _number(plan, "offset")
        return aligned if aligned > now else aligned + every
    match = _next_match(plan, max(previous, now, _number(plan, "startDate")))
    return None if match is None or (end and match > end) else match


def _number(plan: Mapping[str, str], name: str) -> int:
    return int(float(plan.get(name) or 0))


def _is_readable(plan: Mapping[str, str]) -> bool:
    return _next_match(plan, 0) is not None


def _next_match(plan: Mapping[str, str], after: int) -> int | None:
    return next_match(plan.get("pattern", ""), plan.get("tz", ""), after)


def _inherited(current: object) -> dict[str, object]:
    """Return what the next job takes over; a worker of Node adds its default of attempts."""
    known = dict(current) if isinstance(current, dict) else {}
    known.pop("prevMillis", None)
    return {"attempts": 0, **known}


def _repeat(plan: Mapping[str, str], current: object, count: int) -> dict[str, object]:
    """Return how the next job repeats: as the current one, and as its scheduler says."""
    numbers = {name: _number(plan, name) for name in _NUMBERS if plan.get(name)}
    words = {name: plan[name] for name in _WORDS if plan.get(name)}
    known = current if isinstance(current, dict) else {}
    return {**known, **numbers, **words, "count": count}
