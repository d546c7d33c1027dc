"""The reads of the memory store, written for clarity, not speed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import Job, State
from holdfast.model.measures import Reading, Stats, Tally
from holdfast.store.counters import ReadingKey
from holdfast.store.cursors import read_cursor, write_cursor
from holdfast.store.memory.tables import Tables, ends_at, is_verdict_due
from holdfast.store.namespaces import is_within
from holdfast.store.values import (
    COUNT_CAP,
    Dependent,
    EventPage,
    FailurePage,
    FailureSearch,
    Finding,
    Level,
    NamedLock,
    Order,
    Page,
    QueueInfo,
    Search,
)

FAILURE_ORDER = "FAILURE"
VOLATILE = Finding(
    "durability",
    Level.WARN,
    "Jobs are kept in the memory of this process and are lost when it ends.",
    "Use sqlite:///jobs.db or a server for anything but tests.",
)


def find(tables: Tables, search: Search) -> Page:
    """Return one page of matching jobs."""
    matching = [job for job in tables.jobs.values() if _matches(job, search)]
    place = tables.moved if search.order is Order.UPDATED_DESC else tables.numbers
    ascending = search.order is Order.CREATED_ASC
    matching.sort(key=lambda job: place[job.id], reverse=not ascending)
    rest = matching
    if search.cursor is not None:
        (last,) = read_cursor(search.cursor, search.order)
        rest = [j for j in matching if (place[j.id] > last if ascending else place[j.id] < last)]
    page, more = rest[: search.limit], len(rest) > search.limit
    cursor = write_cursor(search.order, place[page[-1].id]) if more else None
    exact = len(matching) <= COUNT_CAP or _is_countable(search)
    total = len(matching) if exact else COUNT_CAP
    left_out = {job.id: size for job in page if (size := _too_large(job.result, search.most_bytes))}
    jobs = tuple(_without_large(job, search.most_bytes) for job in page)
    return Page(jobs, cursor, total, exact, left_out)


def _too_large(content: bytes | None, most: int | None) -> int:
    """Return the size of a content that is left out, else 0."""
    return len(content) if most is not None and content and len(content) > most else 0


def _without_large(job: Job, most: int | None) -> Job:
    return replace(
        job,
        payload=b"" if _too_large(job.payload, most) else job.payload,
        checkpoint=None if _too_large(job.checkpoint, most) else job.checkpoint,
        result=None if _too_large(job.result, most) else job.result,
    )


def _is_countable(search: Search) -> bool:
    return not (
        search.tags
        or search.correlation_id
        or search.id_prefix
        or search.created_after
        or search.created_before
        or search.updated_after
    )


def _matches(job: Job, search: Search) -> bool:
    return (
        (not search.types or job.type in search.types)
        and (not search.queues or job.queue in search.queues)
        and is_within(job.queue, search.namespace)
        and (not search.states or job.state in search.states)
        and (not search.priorities or job.priority in search.priorities)
        and all(job.tags.get(name) == value for name, value in search.tags.items())
        and (not search.correlation_id or job.correlation_id == search.correlation_id)
        and job.id.startswith(search.id_prefix)
        and (search.created_after is None or job.created_at >= search.created_after)
        and (search.created_before is None or job.created_at < search.created_before)
        and (search.updated_after is None or job.updated_at >= search.updated_after)
    )


def failures(tables: Tables, search: FailureSearch) -> FailurePage:
    """Return one page of failed jobs with counts by category, code and type."""
    matching = [
        (_micros(job.failure.at), tables.numbers[job.id], job)
        for job in tables.jobs.values()
        if job.failure is not None and job.failure.at is not None and _failed(job, search)
    ]
    matching.sort(reverse=True, key=lambda entry: entry[:2])
    rest = matching
    if search.cursor is not None:
        last = read_cursor(search.cursor, FAILURE_ORDER, parts=2)
        rest = [entry for entry in matching if entry[:2] < last]
    page, more = rest[: search.limit], len(rest) > search.limit
    jobs = [job for _, _, job in matching]
    return FailurePage(
        jobs=tuple(_without_large(job, search.most_bytes) for _, _, job in page),
        next_cursor=write_cursor(FAILURE_ORDER, *page[-1][:2]) if more else None,
        total=len(matching),
        by_category=_counted([job.failure.category for job in jobs if job.failure]),
        by_code=_counted([job.failure.code for job in jobs if job.failure]),
        by_type=_counted([job.type for job in jobs]),
    )


def _failed(job: Job, search: FailureSearch) -> bool:
    failure = job.failure
    assert failure is not None
    assert failure.at is not None
    return (
        job.state in search.states
        and (not search.categories or failure.category in search.categories)
        and (not search.types or job.type in search.types)
        and (not search.queues or job.queue in search.queues)
        and is_within(job.queue, search.namespace)
        and (not search.code or failure.code == search.code)
        and (search.after is None or failure.at >= search.after)
        and (search.before is None or failure.at < search.before)
    )


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def _counted(values: Sequence[str]) -> dict[str, int]:
    return {str(value): count for value, count in sorted(Counter(values).items())}


def overdue(tables: Tables, limit: int, now: datetime) -> list[Job]:
    """Return live jobs whose lease or lifetime has ended, earliest end first."""
    passed = sorted(
        (end, tables.numbers[job.id], job)
        for job in tables.jobs.values()
        if (end := ends_at(job)) is not None and end <= now
    )
    return [job for _, _, job in passed[:limit]]


def dependents(tables: Tables, limit: int) -> list[Dependent]:
    """Return waiting jobs on which a verdict may be due, oldest first."""
    found = []
    for job_id, edges in tables.edges.items():
        job = tables.jobs[job_id]
        if tables.is_waiting(job_id) and not job.held and is_verdict_due(job, edges):
            parents = ((p, ended or tables.jobs[p].state) for p, ended in edges.items())
            found.append(Dependent(job, tuple(parents)))
    found.sort(key=lambda dependent: tables.numbers[dependent.job.id])
    return found[:limit]


def lock(tables: Tables, wanted: NamedLock, now: datetime, ttl: timedelta) -> bool:
    """Write a lock unless another holder has the name; see ``Store.lock``."""
    found = tables.locks.get(wanted.name)
    latest = now + ttl if ttl else datetime.max.replace(tzinfo=UTC)
    if found is not None and found.holder != wanted.holder and now < found.until <= latest:
        return False
    tables.locks[wanted.name] = wanted
    return True


def locks(tables: Tables, prefix: str, now: datetime) -> list[NamedLock]:
    """Return the unexpired locks whose name has this prefix."""
    found = [lock for lock in tables.locks.values() if lock.until > now]
    return sorted((x for x in found if x.name.startswith(prefix)), key=lambda x: x.name)


def events(tables: Tables, after: str | None, limit: int, kept: int) -> EventPage:
    """Return events after a cursor, as far back as they are kept."""
    oldest = max(0, tables.newest_event - kept)
    if limit == 0:
        return EventPage((), str(tables.newest_event))
    start = 0 if after is None else _event_number(after)
    if is_lost := not oldest <= start <= tables.newest_event:
        start = oldest
    page = [event for event in tables.events if int(event.cursor) > start][:limit]
    cursor = page[-1].cursor if page else str(start)
    return EventPage(tuple(page), cursor, gap=is_lost and after is not None)


def _event_number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise ValidationError([Fault("cursor", "INVALID", "must come from an event")])
    return int(cursor)


def stats(
    tables: Tables, minutes: tuple[int, int], namespace: str | None, *, by_minute: bool
) -> Stats:
    """Return the counters, and the measures from a minute to another, one by one or their sums."""
    tallies = [
        Tally(*key, count)
        for key, count in sorted(tables.tallies.items())
        if count and is_within(key[0], namespace)
    ]
    first, last = minutes
    summed: dict[ReadingKey, tuple[int, float]] = {}
    for key, (count, top) in tables.readings.items():
        if first <= key[0] <= last and is_within(key[1], namespace):
            place = (key[0] if by_minute else 0, *key[1:])
            had, highest = summed.get(place, (0, 0.0))
            summed[place] = (had + count, max(highest, top))
    readings = [
        Reading(*place[1:], *value, minute=place[0]) for place, value in sorted(summed.items())
    ]
    return Stats(tuple(tallies), tuple(readings))


def _ready_since(tables: Tables) -> dict[str, datetime]:
    """Since when the first in line at each priority have been ready, the earliest per queue."""
    firsts: dict[tuple[str, int], tuple[int, datetime]] = {}
    for job_id, (priority, place) in tables.ready.items():
        job = tables.jobs[job_id]
        line, entry = (job.queue, priority), (place, job.scheduled_at or job.created_at)
        firsts[line] = min(entry, firsts.get(line, entry))
    since: dict[str, datetime] = {}
    for (queue, _), (_, at) in firsts.items():
        since[queue] = min(at, since.get(queue, at))
    return since


def queues(tables: Tables, namespace: str | None) -> list[QueueInfo]:
    """Return every queue that has settings or jobs."""
    counts: defaultdict[str, Counter[State]] = defaultdict(Counter)
    for (queue, _, _, state), count in tables.tallies.items():
        counts[queue][state] += count
    since = _ready_since(tables)
    names = {name for name, count in counts.items() if any(count.values())}
    names |= {name for name, settings in tables.settings.items() if settings}
    return [
        QueueInfo(
            name=name,
            paused=bool(tables.settings[name].get("paused")),
            ageing=tables.settings[name].get("ageing"),  # type: ignore[arg-type]
            counts={state: n for state, n in sorted(counts[name].items()) if n},
            ready_since=since.get(name),
        )
        for name in sorted(names)
        if is_within(name, namespace)
    ]
