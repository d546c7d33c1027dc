"""The verbs that only read."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import TERMINAL, CancelRequest, Job, LogLine, State, Transition
from holdfast.model.measures import Measure, Reading, Stats, Tally, minute_of
from holdfast.runtime.clock import SystemClock
from holdfast.store.cursors import read_cursor, write_cursor
from holdfast.store.postgres.arrays import Ints, Texts
from holdfast.store.postgres.base import Base
from holdfast.store.postgres.claim import read_gate, read_rules
from holdfast.store.postgres.connection import PostgresSession
from holdfast.store.postgres.health import findings
from holdfast.store.postgres.rows import (
    Row,
    cancel_of,
    document,
    progress_of,
    transitions_of,
)
from holdfast.store.values import (
    COUNT_CAP,
    EventKind,
    EventPage,
    FailurePage,
    FailureSearch,
    Finding,
    JobEvent,
    LimitState,
    NamedLock,
    Order,
    Page,
    QueueInfo,
    Search,
)

FAILURE_ORDER = "FAILURE"
SOONEST_LOOK, LATEST_LOOK = 0.01, 0.1
"""Seconds between two looks for events: whoever begins to wait often waits for something quick."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_log_line = msgspec.json.Decoder(LogLine).decode


class Reads(Base):
    """Everything that can be asked; see ``Store`` for what each verb promises."""

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        rows = await self._run("get", {"id": Texts(ids)})
        found = {job.id: job for job in self._jobs(rows)}
        return [found.get(id_) for id_ in ids]

    async def cancels(self, ids: Sequence[str]) -> list[CancelRequest | None]:
        rows = await self._run("cancels", {"id": Texts(ids)})
        found = {id_: cancel_of(wish) for id_, wish in rows}
        return [found.get(id_) for id_ in ids]

    async def ended(self, ids: Sequence[str]) -> set[str]:
        return {id_ for (id_,) in await self._run("ended", {"id": Texts(ids)})}

    async def parents(self, job_id: str) -> list[str]:
        return [id_ for (id_,) in await self._run("parents", {"id": job_id})]

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        found: defaultdict[str, list[Transition]] = defaultdict(list)
        for id_, *step in await self._run("history", {"id": Texts(ids)}):
            found[id_] += transitions_of(tuple(step))
        return [list(found[id_]) if id_ in found else [] for id_ in ids]

    async def logs(self, job_id: str) -> list[LogLine]:
        return [_log_line(line) for (line,) in await self._run("logs", {"id": job_id})]

    async def find(self, search: Search) -> Page:
        filters = _filters(search)
        updated = search.order is Order.UPDATED_DESC
        parts = 2 if updated else 1
        place = (
            read_cursor(search.cursor, search.order, parts) if search.cursor is not None else None
        )
        params = {**filters, "most": search.limit + 1}
        if updated:
            params |= {"xid": str(place[0]), "seq": place[1]} if place else _NOWHERE
        else:
            params |= {"place": place[0] if place else None}
        rows = await self._search(f"find_{search.order.lower()}", params)
        page = rows[: search.limit]
        total, exact = await self._count(search, filters)
        more = len(rows) > search.limit
        cursor = write_cursor(search.order, *map(int, page[-1][-parts:])) if more else None
        return Page(tuple(self._jobs(page)), cursor, total, exact)

    async def _count(self, search: Search, filters: dict[str, object]) -> tuple[int, bool]:
        if _is_countable(search):
            ((total,),) = await self._search("find_total", filters)
            return total, True
        counted = await self._search("find_count", {**filters, "most": COUNT_CAP + 1})
        total = counted[0][0]
        return min(total, COUNT_CAP), total <= COUNT_CAP

    async def failures(self, search: FailureSearch) -> FailurePage:
        place = (
            read_cursor(search.cursor, FAILURE_ORDER, parts=2)
            if search.cursor is not None
            else None
        )
        filters = _failure_filters(search)
        params = {
            **filters,
            "most": search.limit + 1,
            "at": _EPOCH + timedelta(microseconds=place[0]) if place else None,
            "place": place[1] if place else None,
        }
        rows = await self._search("failures", params)
        page = rows[: search.limit]
        cursor = None
        if len(rows) > search.limit:
            at, number = page[-1][-2:]
            cursor = write_cursor(FAILURE_ORDER, (at - _EPOCH) // timedelta(microseconds=1), number)
        counts: tuple[dict[str, int], ...] = ({}, {}, {})
        source = "failure_tolls" if _is_tolled(search) else "failure_counts"
        for group, *names, count in await self._search(source, filters):
            which = _GROUPS[group]
            counts[which][names[which]] = count
        by_category, by_code, by_type = (dict(sorted(found.items())) for found in counts)
        total = sum(by_category.values())
        return FailurePage(tuple(self._jobs(page)), cursor, total, by_category, by_code, by_type)

    async def stats(self, window: timedelta) -> Stats:
        since = minute_of(self.now() - window)
        tallies = await self._run("tallies", {})
        readings = await self._run("readings", {"since": since})
        return Stats(
            tuple(Tally(q, t, p, State(state), n) for q, t, p, state, n in tallies),
            tuple(Reading(q, t, p, Measure(m), *rest) for q, t, p, m, *rest in readings),
        )

    async def queues(self) -> list[QueueInfo]:
        found: dict[str, QueueInfo] = {}
        for name, paused, ageing, state, count in await self._run("queues", {}):
            counts = {**found[name].counts} if name in found else {}
            if state is not None:
                counts[State(state)] = count
            span = None if ageing is None else timedelta(seconds=ageing)
            found[name] = QueueInfo(name=name, paused=paused, ageing=span, counts=counts)
        return list(found.values())

    async def findings(self) -> list[Finding]:
        (row,) = await self._run("examine", {})
        here, listens = SystemClock().now(), await self._wake.hears()
        return findings(row, here, listens=listens, trouble=self._wake.trouble)

    async def limits(self) -> list[LimitState]:
        return await self._database.atomically(self._limits)

    async def _limits(self, session: PostgresSession) -> list[LimitState]:
        rules = await read_rules(session)
        return (await read_gate(session, rules, self.now(), self._clock.judged)).states()

    async def holds(self, prefix: str) -> list[NamedLock]:
        rows = await self._run("holds", {"prefix": prefix, "now": self._clock.judged})
        return [NamedLock(*row) for row in rows]

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        place = None if after is None else read_event_cursor(after)
        page = await self._events(place, limit)
        loop = asyncio.get_running_loop()
        deadline, look = loop.time() + wait.total_seconds(), SOONEST_LOOK
        while limit and not page.events and loop.time() < deadline:
            await self._wake.bell.wait(min(deadline, loop.time() + look))
            look = min(2 * look, LATEST_LOOK)
            page = await self._events(place, limit)
        return page

    async def _events(self, place: tuple[int, int] | None, limit: int) -> EventPage:
        is_lost = False
        if place is not None and limit:
            rows, is_known, newest = await self._page_of_events(place, limit)
            if is_known and newest - place[1] <= self._events_kept:
                return _event_page(rows, place, limit)
            is_lost = not is_known
        last, oldest = await self._event_bounds()
        if not limit:
            return EventPage((), write_event_cursor(last))
        start = place or _BEGINNING
        if is_lost or start < oldest:
            start = oldest
        rows, _, _ = await self._page_of_events(start, limit)
        return _event_page(rows, start, limit, gap=place not in (None, start))

    async def _page_of_events(
        self, place: tuple[int, int], limit: int
    ) -> tuple[list[Row], bool, int]:
        """Return the rows after a place, whether there is such a place, and the newest number."""
        rows = await self._run("events", {"xid": str(place[0]), "seq": place[1], "most": limit})
        is_known, newest = rows[0][-2:] if rows else (False, 0)
        told = [row[:-2] for row in rows if row[0] is not None]
        told.sort(key=lambda row: (int(row[0]), row[1]))
        return told, is_known or place == _BEGINNING, newest

    async def _event_bounds(self) -> tuple[tuple[int, int], tuple[int, int]]:
        rows = await self._run("event_bounds", {"kept": self._events_kept})
        if not rows:
            return _BEGINNING, _BEGINNING
        xid, seq, old_xid, old_seq = rows[0]
        return (int(xid), seq), (int(old_xid or 0), old_seq or 0)

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        deadline = asyncio.get_running_loop().time() + wait.total_seconds()
        self._wake.listen()
        bell = self._wake.bell
        while bell.count(queues) == seen and await bell.wait(deadline):
            pass
        return bell.count(queues)


_BEGINNING = (0, 0)
"""The place before the first event."""
_NOWHERE: dict[str, object] = {"xid": None, "seq": None}
_GROUPS = {0b011: 0, 0b101: 1, 0b110: 2}
"""GROUPING() has a bit for every column that is summed over."""


def _filters(search: Search) -> dict[str, object]:
    return {
        "types": _texts(search.types),
        "queues": _texts(search.queues),
        "states": _texts(search.states),
        "priorities": Ints(search.priorities) if search.priorities else None,
        "tags": text.decode() if (text := document(search.tags or None)) else None,
        "correlation_id": search.correlation_id or None,
        "created_after": search.created_after,
        "created_before": search.created_before,
        "updated_after": search.updated_after,
    }


def _failure_filters(search: FailureSearch) -> dict[str, object]:
    return {
        "states": Texts(search.states),
        "categories": _texts(search.categories),
        "types": _texts(search.types),
        "queues": _texts(search.queues),
        "code": search.code or None,
        "after": search.after,
        "before": search.before,
    }


def _texts(values: Sequence[str]) -> Texts | None:
    return Texts(values) if values else None


def _is_countable(search: Search) -> bool:
    return not (
        search.tags
        or search.correlation_id
        or search.created_after
        or search.created_before
        or search.updated_after
    )


def _is_tolled(search: FailureSearch) -> bool:
    """Whether the counters know the answer: all that failed for good, whenever that was."""
    return search.after is None and search.before is None and TERMINAL.issuperset(search.states)


def write_event_cursor(place: tuple[int, int]) -> str:
    """Where in the stream an event stands: its transaction, then its number."""
    return f"{place[0]}-{place[1]}"


def read_event_cursor(cursor: str) -> tuple[int, int]:
    """Return where a cursor points; refuse garbage."""
    xid, _, seq = cursor.partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in (xid, seq)):
        raise ValidationError([Fault("cursor", "INVALID", "must come from an event")])
    return int(xid), int(seq)


def _event_page(
    rows: Sequence[Row], start: tuple[int, int], limit: int, *, gap: bool = False
) -> EventPage:
    told = [each for row in rows for each in _events_of(row) if each[0] > start][:limit]
    events = tuple(event for _, event in told)
    return EventPage(events, events[-1].cursor if events else write_event_cursor(start), gap)


def _events_of(row: Row) -> Iterator[tuple[tuple[int, int], JobEvent]]:
    """Read what a row of the journal tells, each with its place: two events, if it is a birth."""
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
