"""The reads of the Redis store: searches walk an index, counters are a hash each."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import Job, State
from holdfast.model.measures import Measure, Reading, Stats, Tally
from holdfast.store.cursors import read_cursor, write_cursor
from holdfast.store.redis import fields, params, wire
from holdfast.store.values import (
    COUNT_CAP,
    EventKind,
    EventPage,
    FailurePage,
    FailureSearch,
    JobEvent,
    NamedLock,
    Order,
    Page,
    QueueInfo,
    Search,
)

if TYPE_CHECKING:
    from holdfast.store.redis.store import RedisStore

LOOK = 1000
"""Index entries one script call looks at."""
FAILURE_ORDER = "FAILURE"
_stories = msgspec.msgpack.Decoder(list[tuple[str, str, list[str], list[str]]])
"""What jobs went through alike: their type, their queue, the edges of each, who they are."""
POLL = timedelta(seconds=1)
"""How soon changes made by BullMQ clients become events while somebody waits for events."""


async def pairs(store: RedisStore, name: str) -> dict[bytes, bytes]:
    """Return a shared hash."""
    return paired(await store.client.command("HGETALL", store.keys.shared(name)))


def paired(answer: object) -> dict[bytes, bytes]:
    """Return a flat answer of names and values as a map."""
    if isinstance(answer, dict):
        return answer
    assert isinstance(answer, list)
    return dict(zip(answer[::2], answer[1::2], strict=True))


async def find(store: RedisStore, search: Search) -> Page:
    """Return one page of matching jobs."""
    start = None
    if search.cursor is not None:
        (start,) = read_cursor(search.cursor, search.order)
    walk = _Walk(store, _plan(search))
    await walk.collect(start, search.limit + 1)
    more = len(walk.jobs) > search.limit
    cursor = write_cursor(search.order, walk.places[search.limit - 1]) if more else None
    total, exact = await _total(store, search, walk)
    return Page(tuple(walk.jobs[: search.limit]), cursor, total, exact)


def _plan(search: Search) -> dict[str, object]:
    within = [params.tag_index(name, value) for name, value in search.tags.items()]
    if search.correlation_id:
        within.append(params.correlation_index(search.correlation_id))
    filters: dict[str, object] = {
        "states": [state.value for state in search.states],
        "types": list(search.types),
        "queues": list(search.queues),
        "levels": list(search.priorities),
        "within": within,
    }
    for name in ("created_after", "created_before", "updated_after"):
        moment = getattr(search, name)
        if moment is not None:
            filters[name] = fields.micros(moment)
    ascending = search.order is Order.CREATED_ASC
    return {**filters, "index": _index(search, within), "ascending": ascending, "tally": True}


def _index(search: Search, within: list[str]) -> str:
    if search.order is Order.UPDATED_DESC:
        return "moved"
    if within:
        return within[0]
    if len(search.states) == 1:
        return f"s:{search.states[0]}"
    if len(search.types) == 1:
        return f"t:{search.types[0]}"
    return "created"


async def _total(store: RedisStore, search: Search, walk: _Walk) -> tuple[int, bool]:
    dated = search.created_after or search.created_before or search.updated_after
    if not (search.tags or search.correlation_id or dated):
        return sum(tally.count for tally in walk.tallies if _counts(tally, search)), True
    every = _Walk(store, _plan(search))
    await every.collect(None, 0, count=COUNT_CAP + 1)
    return min(every.count, COUNT_CAP), every.count <= COUNT_CAP


def _counts(tally: Tally, search: Search) -> bool:
    return (
        (not search.types or tally.type in search.types)
        and (not search.queues or tally.queue in search.queues)
        and (not search.states or tally.state in search.states)
        and (not search.priorities or tally.priority in search.priorities)
    )


class _Walk:
    """Goes through an index, a bounded number of entries per call."""

    def __init__(self, store: RedisStore, want: dict[str, object]) -> None:
        self._store = store
        self._want = {**want, "look": LOOK}
        self.tallies: list[Tally] = []
        self.jobs: list[Job] = []
        self.places: list[int] = []
        self.count = 0

    async def collect(self, start: int | None, images: int, *, count: int = 0) -> None:
        """Read on until so many jobs were found, or so many were counted."""
        reached: int | None = start
        while True:
            want = {**self._want, "images": images - len(self.jobs)}
            if reached is not None:
                want["from"] = reached
            found, places, fit, last, tally = await self._store.call("scan", params.pack(want))
            self.tallies = read_tally(tally)
            self.jobs += [self._store.read(image) for image in found]
            self.places += [int(float(place)) for place in places]
            self.count += fit
            done = len(self.jobs) >= images and self.count >= count
            if not last or done:
                return
            reached = int(float(last))


async def failures(store: RedisStore, search: FailureSearch) -> FailurePage:
    """Return one page of the jobs that failed, and what they failed of."""
    states = tuple(dict.fromkeys(search.states))
    few = len(states) <= 2
    matching: list[tuple[tuple[int, int], Job]] = []
    for group in [(state,) for state in states] if few else [states]:
        plan = _plan(Search(states=group, types=search.types, queues=search.queues))
        walk = _Walk(store, {**plan, "tally": False})
        await walk.collect(None, 1_000_000_000)
        matching += [
            ((fields.micros(job.failure.at), number), job)
            for number, job in zip(walk.places, walk.jobs, strict=True)
            if job.failure is not None and job.failure.at is not None and _failed(job, search)
        ]
    matching.sort(key=lambda entry: entry[0], reverse=True)
    rest = matching
    if search.cursor is not None:
        last = read_cursor(search.cursor, FAILURE_ORDER, parts=2)
        rest = [entry for entry in matching if entry[0] < last]
    page, more = rest[: search.limit], len(rest) > search.limit
    reasons = [job.failure for _, job in matching if job.failure]
    return FailurePage(
        jobs=tuple(job for _, job in page),
        next_cursor=write_cursor(FAILURE_ORDER, *page[-1][0]) if more else None,
        total=len(matching),
        by_category=_tallied([reason.category for reason in reasons]),
        by_code=_tallied([reason.code for reason in reasons]),
        by_type=_tallied([job.type for _, job in matching]),
    )


def _failed(job: Job, search: FailureSearch) -> bool:
    failure = job.failure
    assert failure is not None
    assert failure.at is not None
    return (
        (not search.categories or failure.category in search.categories)
        and (not search.code or failure.code == search.code)
        and (search.after is None or failure.at >= search.after)
        and (search.before is None or failure.at < search.before)
    )


def _tallied(words: Sequence[str]) -> dict[str, int]:
    return {str(word): count for word, count in sorted(Counter(words).items())}


def read_tally(answer: object) -> list[Tally]:
    """Read the counters of jobs by kind and state."""
    found = []
    for field, count in paired(answer).items():
        queue, level, state, type_ = fields.text(field).split(":", 3)
        if int(count):
            found.append(Tally(queue, type_, int(level), State(state), int(count)))
    return sorted(found, key=lambda t: (t.queue, t.type, t.priority, t.state))


async def stats(store: RedisStore, first_minute: int) -> Stats:
    """Return the counters, and the measures from a minute on, summed."""
    tally, minutes = await store.call("counts", "stats", first_minute)
    summed: defaultdict[tuple[str, str, int, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for minute in minutes:
        for field, value in paired(minute).items():
            kind, queue, level, measure, bucket, type_ = fields.text(field).split(":", 5)
            entry = summed[queue, type_, int(level), measure, int(bucket)]
            if kind == "n":
                entry[0] += int(value)
            else:
                entry[1] = max(entry[1], int(value))
    readings = [
        Reading(queue, type_, level, Measure(measure), bucket, count, top / 1_000_000)
        for (queue, type_, level, measure, bucket), (count, top) in sorted(summed.items())
    ]
    return Stats(tuple(read_tally(tally)), tuple(readings))


async def queues(store: RedisStore) -> list[QueueInfo]:
    """Return every queue that has settings or jobs."""
    tally, known = await store.call("counts", "queues", "")
    counts: defaultdict[str, Counter[State]] = defaultdict(Counter)
    for each in read_tally(tally):
        counts[each.queue][each.state] += each.count
    return [
        QueueInfo(
            name=name.decode(),
            paused=bool(paused),
            ageing=timedelta(microseconds=int(ageing)) if ageing else None,
            counts=dict(sorted(counts[name.decode()].items())),
        )
        for name, paused, ageing, has_settings in sorted(known)
        if name.decode() in counts or has_settings or paused
    ]


async def holds(store: RedisStore, prefix: str) -> list[NamedLock]:
    """Return the unexpired holds whose name begins so."""
    now = store.now()
    found = []
    for name, packed in (await pairs(store, "holds")).items():
        ends, size, rest = packed.split(b"|", 2)
        until = fields.instant(int(ends))
        if name.decode().startswith(prefix) and until > now:
            holder, data = rest[: int(size)], rest[int(size) :]
            found.append(NamedLock(name.decode(), holder.decode(), until, data))
    return sorted(found, key=lambda hold: hold.name)


async def parents(store: RedisStore, job_id: str) -> list[str]:
    """Return every job this one waits or waited for."""
    (edges,) = await store.call("peek", "parents", params.pack([job_id]))
    places = {parent.decode(): int(value.split(b":")[0]) for parent, value in paired(edges).items()}
    return sorted(places, key=lambda parent: places[parent])


async def events(store: RedisStore, after: str | None, limit: int, wait: timedelta) -> EventPage:
    """Return events after a cursor; wait for some when there are none."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait.total_seconds()
    while True:
        page = await _event_page(store, after, limit)
        left = deadline - loop.time()
        if page.events or not limit or left <= 0:
            return page
        pause = min(POLL, timedelta(seconds=left))
        millis = max(1, pause // timedelta(milliseconds=1))
        stream = store.keys.shared("events")
        await store.client.blocking(
            pause, "XREAD", "COUNT", 1, "BLOCK", millis, "STREAMS", stream, f"{page.cursor}-0"
        )


async def _event_page(store: RedisStore, after: str | None, limit: int) -> EventPage:
    start = 0 if after is None else _event_number(after)
    newest, first, rows = await store.call("tail", start, limit)
    told = int(newest)
    if limit == 0:
        return EventPage((), str(told))
    kept = int(first) - 1 if first else told
    oldest = max(kept, told - store.settings.events_kept)
    if is_lost := not oldest <= start <= told:
        start = oldest
    found = tuple(event for row in rows for event in _told(*row) if int(event.cursor) > start)
    page = found[:limit]
    cursor = page[-1].cursor if page else str(start)
    return EventPage(page, cursor, gap=is_lost and after is not None)


def _told(row_id: bytes, values: list[bytes]) -> Iterator[JobEvent]:
    """Read the events of one entry; its id is the number of the last."""
    number = int(row_id.split(b"-")[0]) - int(values[1])
    for type_, queue, edges, ids in _stories.decode(values[3]):
        for job_id in ids:
            for edge in edges:
                number += 1
                yield _event(str(number), job_id, type_, queue, edge.encode())


def _event(cursor: str, job_id: str, type_: str, queue: str, body: bytes) -> JobEvent:
    moved = body.startswith(b"[")
    transition = wire.read_edge(body) if moved else None
    progress = None if moved else fields.read_progress(body)
    at: datetime = transition.at if transition else progress.at if progress else fields.EPOCH
    return JobEvent(
        cursor=cursor,
        job_id=job_id,
        type=type_,
        queue=queue,
        kind=EventKind.TRANSITION if moved else EventKind.PROGRESS,
        at=at,
        transition=transition,
        progress=progress,
    )


def _event_number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise ValidationError([Fault("cursor", "INVALID", "must come from an event")])
    return int(cursor)
