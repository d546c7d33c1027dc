"""The plain reads: jobs by id, what is kept beside them, counters, events."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import CancelRequest, Job, LogLine, State, Transition
from holdfast.model.measures import Measure, Reading, Stats, Tally
from holdfast.model.payload import clean
from holdfast.store.damage import readable
from holdfast.store.namespaces import is_within
from holdfast.store.redis import decode, fields
from holdfast.store.redis.encode import pack
from holdfast.store.redis.session import RedisSession
from holdfast.store.values import EventKind, EventPage, JobEvent, NamedLock, QueueInfo

MAX_COUNTER = 1 << 62
POLL = timedelta(seconds=1)
"""How soon a caller that waits for events learns of changes made by BullMQ clients."""

_event_groups = msgspec.msgpack.Decoder(list[tuple[str, str, list[str], list[str]]])
"""What several jobs went through: their type, their queue, the edges of each, their ids."""


async def get(session: RedisSession, ids: Sequence[str]) -> list[Job | None]:
    """Return jobs by id; see ``Store.get``."""
    replies = await session.call("get", pack(list(map(clean, ids))))
    return [session.read(reply) if reply else None for reply in replies]


async def cancels(session: RedisSession, ids: Sequence[str]) -> list[CancelRequest | None]:
    """Return the requests to cancel; see ``Store.cancels``."""
    found = await session.call("peek", "rest", pack(list(map(clean, ids))))
    return [fields.read_cancel(rest[0] if rest else None) for rest in found]


async def parents(session: RedisSession, job_id: str) -> list[str]:
    """Return the jobs that a job waits or waited for; see ``Store.parents``."""
    (links,) = await session.call("peek", "parents", pack([job_id]))
    places = {p.decode(): int(value.split(b":")[0]) for p, value in fields.pairs(links).items()}
    return sorted(places, key=lambda parent: places[parent])


async def children(session: RedisSession, job_id: str, *, waiting: bool) -> list[str]:
    """Return what a job spawned, its other children, or who waits; see ``Store.children``."""
    if waiting:
        (found,) = await session.call("peek", "followers", pack([job_id]))
        return sorted(child.decode() for child in found)
    (found,) = await session.call("peek", "children", pack([job_id]))
    return [child.decode() for child in found]


async def history(session: RedisSession, ids: Sequence[str]) -> list[list[Transition]]:
    """Return the transitions of each job; see ``Store.history``."""
    found = await session.call("peek", "history", pack(list(map(clean, ids))))
    return [[edge for lines in each for edge in decode.read_edges(lines)] for each in found]


async def logs(session: RedisSession, ids: Sequence[str]) -> list[list[LogLine]]:
    """Return what each job logged; see ``Store.logs``."""
    found = await session.call("peek", "logs", pack(list(map(clean, ids))))
    return [[decode.read_log_row(row) for row in rows] for rows in found]


async def locks(session: RedisSession, prefix: str) -> list[NamedLock]:
    """Return the unexpired named locks; see ``Store.locks``."""
    now = session.now()
    held = fields.pairs(await session.call("locks", prefix)).items()
    found = [lock for lock in readable(held, _named_lock) if lock.until > now]
    return sorted(found, key=lambda lock: lock.name)


def _named_lock(item: tuple[bytes, bytes]) -> NamedLock:
    ends, size, rest = item[1].split(b"|", 2)
    holder, data = rest[: int(size)], rest[int(size) :]
    return NamedLock(fields.text(item[0]), holder.decode(), fields.instant(int(ends)), data)


def read_tallies(answer: object) -> list[Tally]:
    """Read the counters of jobs by kind and state."""
    found = [tally for tally in readable(fields.pairs(answer).items(), _tally) if tally.count]
    return sorted(found, key=lambda t: (t.queue, t.type, t.priority, t.state))


def _tally(item: tuple[bytes, bytes]) -> Tally:
    queue, level, state, type_ = fields.text(item[0]).split(":", 3)
    return Tally(queue, type_, int(level), State(state), _counter(item[1]))


def _counter(value: bytes) -> int:
    count = int(value)
    if abs(count) > MAX_COUNTER:
        raise ValueError("a counter beyond any store's size")
    return count


async def stats(
    session: RedisSession, minutes: tuple[int, int], namespace: str | None, *, by_minute: bool
) -> Stats:
    """Return the counters, and the measures from a minute to another; see ``Store.stats``."""
    scope = fields.scope(namespace)
    tally, found = await session.call("counts", "stats", scope, *minutes)
    sums: defaultdict[tuple[int, _MeasurePlace], list[int]] = defaultdict(lambda: [0, 0])
    for name, measured in found:
        minute = int(name.partition(b"@")[0]) if by_minute else 0
        for kind, place, value in readable(fields.pairs(measured).items(), _measured):
            entry = sums[minute, place]
            if kind == "n":
                entry[0] += value
            else:
                entry[1] = max(entry[1], value)
    readings = [
        Reading(*place, count, top / 1_000_000, minute)
        for (minute, place), (count, top) in sorted(sums.items())
        if is_within(place[0], namespace)
    ]
    return Stats(tuple(read_tallies(tally)), tuple(readings))


_MeasurePlace = tuple[str, str, int, Measure, int]


def _measured(item: tuple[bytes, bytes]) -> tuple[str, _MeasurePlace, int]:
    kind, queue, level, measure, bucket, type_ = fields.text(item[0]).split(":", 5)
    place = (queue, type_, int(level), Measure(measure), int(bucket))
    return kind, place, _counter(item[1])


async def queues(session: RedisSession, namespace: str | None) -> list[QueueInfo]:
    """Return every queue that has settings or jobs; see ``Store.queues``."""
    tally, known = await session.call("counts", "queues", fields.scope(namespace), "")
    counts: defaultdict[str, Counter[State]] = defaultdict(Counter)
    for each in read_tallies(tally):
        counts[each.queue][each.state] += each.count
    return [
        QueueInfo(
            name=fields.text(name),
            paused=bool(paused),
            ageing=timedelta(microseconds=int(ageing)) if int(ageing) else None,
            counts=dict(sorted(counts[fields.text(name)].items())),
            ready_since=fields.instant(int(since)) if int(since) else None,
        )
        for name, paused, ageing, has_settings, since in sorted(known)
        if fields.text(name) in counts or has_settings or paused
    ]


async def events(
    session: RedisSession, after: str | None, limit: int, wait: timedelta
) -> EventPage:
    """Return events after a cursor, and wait when there are none; see ``Store.events``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait.total_seconds()
    while True:
        page = await _event_page(session, after, limit)
        left = deadline - loop.time()
        if page.events or not limit or left <= 0:
            return page
        pause = min(POLL, timedelta(seconds=left))
        millis = max(1, pause // fields.MILLISECOND)
        stream = session.keys.shared("events")
        await session.client.blocking(
            pause, "XREAD", "COUNT", 1, "BLOCK", millis, "STREAMS", stream, f"{page.cursor}-0"
        )


async def _event_page(session: RedisSession, after: str | None, limit: int) -> EventPage:
    start = 0 if after is None else _event_number(after)
    last, first, rows = await session.call("events", start, limit)
    newest = int(last)
    if limit == 0:
        return EventPage((), str(newest))
    kept = int(first) - 1 if first else newest
    oldest = max(kept, newest - session.settings.events_kept)
    if is_lost := not oldest <= start <= newest:
        start = oldest
    entries = readable(rows, lambda row: list(_read_entry(*row)))
    found = tuple(event for each in entries for event in each if int(event.cursor) > start)
    page = found[:limit]
    cursor = page[-1].cursor if page else str(start)
    return EventPage(page, cursor, gap=is_lost and after is not None)


def _read_entry(entry_id: bytes, values: list[bytes]) -> Iterator[JobEvent]:
    """Read the events of one stream entry, whose id is the number of its last event."""
    number = int(entry_id.split(b"-")[0]) - int(values[1])
    for type_, queue, edges, ids in _event_groups.decode(values[3]):
        for job_id in ids:
            for edge in edges:
                number += 1
                yield _event(str(number), job_id, type_, queue, edge.encode())


def _event(cursor: str, job_id: str, type_: str, queue: str, body: bytes) -> JobEvent:
    is_transition = body.startswith(b"[")
    transition, result = decode.read_event(body) if is_transition else (None, None)
    progress = None if is_transition else fields.read_progress(body)
    at: datetime = transition.at if transition else progress.at if progress else fields.EPOCH
    return JobEvent(
        cursor=cursor,
        job_id=job_id,
        type=type_,
        queue=queue,
        kind=EventKind.TRANSITION if is_transition else EventKind.PROGRESS,
        at=at,
        transition=transition,
        progress=progress,
        result=None if result is None or result == "null" else result.encode(),
    )


def _event_number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise ValidationError([Fault("cursor", "INVALID", "must come from an event")])
    return int(cursor)
