"""Jobs that BullMQ clients made: read with BullMQ's defaults, whatever they hold."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from holdfast.model.job import Encoding, Failure, FailureCategory, Job, State
from holdfast.model.policy import HOUR, MAX_ATTEMPTS, Backoff, BackoffKind
from holdfast.model.profiles import BULLMQ
from holdfast.model.times import CENTURY
from holdfast.store.redis.fields import (
    EPOCH,
    MICROSECOND,
    Now,
    Rest,
    Row,
    instant,
    mutable,
    number,
    parsed,
    read_now,
    read_rest,
    text,
    time,
)
from holdfast.store.redis.params import pack
from holdfast.store.redis.settings import FOREVER

if TYPE_CHECKING:
    from holdfast.store.redis.store import RedisStore

_MILLISECOND = timedelta(milliseconds=1)
STALL = "stalled"


def read_job(job_id: str, queue: str, row: Row, unknown_backoff: str = "exponential") -> Job:
    """Read a job that a BullMQ client made."""
    found = parsed(row.options or b"")
    options = found if isinstance(found, dict) else {}
    now = read_now(row)
    ended = now.state == State.COMPLETED.encode()
    created, expires = instant(int(now.created_at)), instant(int(now.expires_at))
    attempts = options.get("attempts")
    allowed = attempts if isinstance(attempts, int) else 1
    rest = read_rest(row.rest) if row.rest else Rest(max_attempts=1)
    return Job(
        id=job_id,
        type=text(row.name),
        queue=queue,
        payload=row.data or b"{}",
        encoding=Encoding.JSON,
        profile=BULLMQ.name,
        created_at=created,
        timeout=BULLMQ.timeout,
        lease_ttl=BULLMQ.lease,
        lifetime=min(expires - created, FOREVER),
        backoff=backoff(options.get("backoff"), unknown_backoff),
        max_attempts=max(1, min(allowed, MAX_ATTEMPTS), rest.max_attempts),
        generation=rest.generation,
        cancel=rest.cancel,
        failure=None if ended else rest.failure if _is_ours(now, rest) else failure(row, now),
        result=row.returnvalue if ended else None,
        **mutable(row, now),  # type: ignore[arg-type]  # one value per field of Job
    )


def _is_ours(now: Now, rest: Rest) -> bool:
    return rest.failure is not None and not now.foreign_failure


def backoff(option: object, unknown: str = "exponential") -> Backoff:
    """Read BullMQ's backoff option; for a strategy only Node knows, ``unknown`` is one we do."""
    if isinstance(option, int | float):
        option = {"type": "fixed", "delay": option}
    kind = option.get("type") if isinstance(option, dict) else None
    kind = kind if kind in ("fixed", "exponential") else unknown
    if not isinstance(option, dict) or kind == "none":
        return Backoff(
            strategy=BackoffKind.CONSTANT, initial_delay=timedelta(0), max_delay=timedelta(0)
        )
    given = option.get("delay")
    delay = _span(given) if isinstance(given, int | float) else _MILLISECOND
    return Backoff(
        strategy=BackoffKind.CONSTANT if kind == "fixed" else BackoffKind.EXPONENTIAL,
        initial_delay=delay,
        max_delay=max(delay, HOUR),
        jitter=bool(option.get("jitter")),
    )


def _span(milliseconds: float) -> timedelta:
    """Return a delay of BullMQ within the bounds of ours, whatever number it is."""
    return max(0.0, min(milliseconds, CENTURY / _MILLISECOND)) * _MILLISECOND


def failure(row: Row, now: Now) -> Failure | None:
    """Read why a BullMQ worker's attempt failed."""
    if row.failed_reason is None:
        return None
    stack = parsed(row.stacktrace or b"")
    message = text(row.failed_reason)
    stalled = STALL in message
    return Failure(
        category=FailureCategory.SYSTEM if stalled else FailureCategory.TEMPORARY,
        code="STALLED" if stalled else "",
        message=message,
        stack_trace=str(stack[-1]) if isinstance(stack, list) and stack else "",
        attempt=number(row.made),
        at=time(now.finished_at) or time(now.updated_at),
        worker=text(row.worker),
    )


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
