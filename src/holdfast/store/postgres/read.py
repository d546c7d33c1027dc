"""Reading single jobs, counters, named locks and the event stream."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import CancelRequest, Job, LogLine, State, Transition
from holdfast.model.measures import Measure, Reading, Stats, StatsWindow, Tally, minutes_of
from holdfast.store.damage import readable
from holdfast.store.namespaces import LAST
from holdfast.store.postgres.arrays import Texts
from holdfast.store.postgres.bounds import bounds
from holdfast.store.postgres.rows import Row, cancel_of, progress_of, transitions_of
from holdfast.store.postgres.state import StoreState
from holdfast.store.values import EventKind, EventPage, JobEvent, NamedLock, QueueInfo

SHORTEST_POLL, LONGEST_POLL = 0.01, 0.1
"""Seconds between two reads of events: most callers that start to wait wait for a short job."""

_BEGINNING = (0, 0)
"""The place before the first event."""
_log_line = msgspec.json.Decoder(LogLine).decode


async def get(state: StoreState, ids: Sequence[str]) -> list[Job | None]:
    """Return jobs by id; see ``Store.get``."""
    rows = await state.run("get", {"id": Texts(ids)})
    found = {job.id: job for job in state.jobs(rows)}
    return [found.get(id_) for id_ in ids]


async def cancels(state: StoreState, ids: Sequence[str]) -> list[CancelRequest | None]:
    """Return requests to cancel; see ``Store.cancels``."""
    rows = await state.run("cancels", {"id": Texts(ids)})
    found = {id_: cancel_of(request) for id_, request in rows}
    return [found.get(id_) for id_ in ids]


async def ended(state: StoreState, ids: Sequence[str]) -> set[str]:
    """Return the ids of those jobs that have ended."""
    return {id_ for (id_,) in await state.run("ended", {"id": Texts(ids)})}


async def parents(state: StoreState, job_id: str) -> list[str]:
    """Return what a job waits or waited for; see ``Store.parents``."""
    return [id_ for (id_,) in await state.run("parents", {"id": job_id})]


async def children(state: StoreState, job_id: str, *, waiting: bool) -> list[str]:
    """Return the jobs that a job spawned, or that wait for it; see ``Store.children``."""
    if waiting:
        return sorted(id_ for (id_,) in await state.run("followers", {"id": job_id}))
    return [id_ for (id_,) in await state.run("children", {"id": job_id})]


async def history(state: StoreState, ids: Sequence[str]) -> list[list[Transition]]:
    """Return the transitions of jobs; see ``Store.history``."""
    found: defaultdict[str, list[Transition]] = defaultdict(list)
    for id_, *step in await state.run("history", {"id": Texts(ids)}):
        for steps in readable([tuple(step)], transitions_of):
            found[id_] += steps
    return [list(found[id_]) if id_ in found else [] for id_ in ids]


async def logs(state: StoreState, ids: Sequence[str]) -> list[list[LogLine]]:
    """Return the log lines of jobs; see ``Store.logs``."""
    found: defaultdict[str, list[LogLine]] = defaultdict(list)
    for id_, line in await state.run("logs", {"id": Texts(ids)}):
        found[id_] += readable([line], _log_line)
    return [list(found[id_]) if id_ in found else [] for id_ in ids]


async def stats(
    state: StoreState,
    window: StatsWindow,
    namespace: str | None,
    *,
    by_minute: bool,
) -> Stats:
    """Return counters and measures; see ``Store.stats``."""
    since, last = minutes_of(window, state.now())
    within = bounds(namespace)
    tallies = await state.run("tallies", within)
    name = f"{'minutes' if by_minute else 'readings'}{'_within' if namespace else ''}"
    readings = await state.run(name, {"since": since, "last": last, **within})
    return Stats(
        tuple(Tally(q, t, p, State(name), n) for q, t, p, name, n in tallies),
        tuple(Reading(q, t, p, Measure(m), *rest) for q, t, p, m, *rest in readings),
    )


async def queues(state: StoreState, namespace: str | None) -> list[QueueInfo]:
    """Return every queue with its settings and counts; see ``Store.queues``."""
    found: dict[str, QueueInfo] = {}
    for row in await state.run("queues", bounds(namespace)):
        name, paused, ageing, job_state, count, since = row
        counts = {**found[name].counts} if name in found else {}
        if name in found:
            since = since or found[name].ready_since
        if job_state is not None:
            counts[State(job_state)] = count
        span = None if ageing is None else timedelta(seconds=ageing)
        found[name] = QueueInfo(
            name=name, paused=paused, ageing=span, counts=counts, ready_since=since
        )
    return list(found.values())


async def locks(state: StoreState, prefix: str) -> list[NamedLock]:
    """Return the named locks that are held; see ``Store.locks``."""
    rows = await state.run(
        "locks", {"prefix": prefix, "last": prefix + LAST, "now": state.clock.override}
    )
    return [NamedLock(*row) for row in rows]


async def arrivals(state: StoreState, queues: Sequence[str], seen: int, wait: timedelta) -> int:
    """Wait for new work in queues; see ``Store.arrivals``."""
    deadline = asyncio.get_running_loop().time() + wait.total_seconds()
    state.wake.listen()
    counter = state.wake.counter
    while counter.count(queues) == seen and await counter.wait(deadline):
        pass
    return counter.count(queues)


async def events(state: StoreState, after: str | None, limit: int, wait: timedelta) -> EventPage:
    """Return the next events; see ``Store.events``."""
    place = None if after is None else read_event_cursor(after)
    page = await _events(state, place, limit)
    loop = asyncio.get_running_loop()
    deadline, poll = loop.time() + wait.total_seconds(), SHORTEST_POLL
    while limit and not page.events and loop.time() < deadline:
        await state.wake.counter.wait(min(deadline, loop.time() + poll))
        poll = min(2 * poll, LONGEST_POLL)
        page = await _events(state, place, limit)
    return page


async def _events(state: StoreState, place: tuple[int, int] | None, limit: int) -> EventPage:
    is_lost = False
    if place is not None and limit:
        rows, is_known, newest = await _page_of_events(state, place, limit)
        if is_known and newest - place[1] <= state.events_kept:
            return _event_page(rows, place, limit)
        is_lost = not is_known
    last, oldest = await _event_bounds(state)
    if not limit:
        return EventPage((), write_event_cursor(last))
    start = place or _BEGINNING
    if is_lost or start < oldest:
        start = oldest
    rows, _, _ = await _page_of_events(state, start, limit)
    return _event_page(rows, start, limit, gap=place not in (None, start))


async def _page_of_events(
    state: StoreState, place: tuple[int, int], limit: int
) -> tuple[list[Row], bool, int]:
    """Return the rows after a place, whether this place exists, and the newest number."""
    rows = await state.run("events", {"xid": str(place[0]), "seq": place[1], "limit": limit})
    is_known, newest = rows[0][-2:] if rows else (False, 0)
    found = [row[:-2] for row in rows if row[0] is not None]
    found.sort(key=lambda row: (int(row[0]), row[1]))
    return found, is_known or place == _BEGINNING, newest


async def _event_bounds(state: StoreState) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the places of the newest event, and of the one before the oldest that is kept."""
    rows = await state.run("event_bounds", {"kept": state.events_kept})
    if not rows:
        return _BEGINNING, _BEGINNING
    xid, seq, old_xid, old_seq = rows[0]
    return (int(xid), seq), (int(old_xid or 0), old_seq or 0)


def write_event_cursor(place: tuple[int, int]) -> str:
    """Return the cursor of an event: its transaction, then its number."""
    return f"{place[0]}-{place[1]}"


def read_event_cursor(cursor: str) -> tuple[int, int]:
    """Return the place of a cursor; refuse garbage."""
    xid, _, seq = cursor.partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in (xid, seq)):
        raise ValidationError([Fault("cursor", "INVALID", "must come from an event")])
    return int(xid), int(seq)


def _event_page(
    rows: Sequence[Row], start: tuple[int, int], limit: int, *, gap: bool = False
) -> EventPage:
    entries = readable(rows, lambda row: list(_events_of(row)))
    found = [each for entry in entries for each in entry if each[0] > start][:limit]
    events = tuple(event for _, event in found)
    return EventPage(events, events[-1].cursor if events else write_event_cursor(start), gap)


def _events_of(row: Row) -> Iterator[tuple[tuple[int, int], JobEvent]]:
    """Read the events of a journal row, each with its place: a submission may be two."""
    xid, seq, job_id, type_, queue, *step, progress = row
    event, _, _, at, *_ = step
    steps = [None] if event is None else transitions_of(tuple(step))
    for number, transition in enumerate(steps, seq - len(steps) + 1):
        place = int(xid), number
        yield (
            place,
            JobEvent(
                cursor=write_event_cursor(place),
                job_id=job_id,
                type=type_,
                queue=queue,
                kind=EventKind.TRANSITION if transition else EventKind.PROGRESS,
                at=at,
                transition=transition,
                progress=None if transition else progress_of(progress),
            ),
        )
