"""What maintenance does: promote due jobs, find overdue jobs and dependents, prune, lock names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.model.job import Job, State
from holdfast.model.measures import minute_of
from holdfast.model.policy import Retention
from holdfast.store.redis import fields
from holdfast.store.redis.encode import pack
from holdfast.store.redis.session import RedisSession
from holdfast.store.values import Dependent, Promoted

MEASURES_KEPT = timedelta(days=7)
KEYS_AT_ONCE = 1000
"""How many expired keys or records of rates one call of the server deletes, or looks at."""


async def promote(session: RedisSession, limit: int) -> Promoted:
    """Make due jobs ready; see ``Store.promote``."""
    sent_at = session.monotonic()
    count, next_due, now = await session.call("promote", limit)
    session.learn_time(int(now), sent_at)
    return Promoted(int(count), fields.instant(int(next_due)) if next_due else None)


async def overdue(session: RedisSession, limit: int) -> list[Job]:
    """Return jobs whose lease or lifetime has ended; see ``Store.overdue``."""
    sent_at = session.monotonic()
    now, replies = await session.call("overdue", limit)
    session.learn_time(int(now), sent_at)
    return [session.read(reply) for reply in replies]


async def dependents(session: RedisSession, limit: int) -> list[Dependent]:
    """Return jobs on which a verdict may be due; see ``Store.dependents``."""
    found = await session.call("dependents", limit)
    return [
        Dependent(
            session.read(reply),
            tuple((p.decode(), State(state.decode())) for _, p, state in sorted(links)),
        )
        for reply, links in found
    ]


async def prune(session: RedisSession, retention: Retention, limit: int) -> int:
    """Delete ended jobs older than allowed; see ``Store.prune``."""
    spans = [
        "" if span is None else span // fields.MICROSECOND
        for span in (
            retention.completed,
            retention.failed,
            retention.dead_letter,
            retention.cancelled,
        )
    ]
    first = minute_of(session.now() - MEASURES_KEPT)
    pruned = int(await session.call("prune", limit, first, *spans))
    while await session.call("expire_keys", KEYS_AT_ONCE) == KEYS_AT_ONCE:
        pass
    cursor = b"0"
    while (cursor := await session.call("expire_windows", cursor, KEYS_AT_ONCE)) != b"0":
        pass
    return pruned


async def delete(session: RedisSession, ids: Sequence[str]) -> list[bool]:
    """Delete ended jobs without live dependents; see ``Store.delete``."""
    return [bool(answer) for answer in await session.call("delete", pack(list(ids)))]


async def lock(session: RedisSession, name: str, holder: str, ttl: timedelta, data: bytes) -> bool:
    """Lock a name; see ``Store.lock``."""
    return bool(await session.call("lock", name, holder, ttl // fields.MICROSECOND, data))
