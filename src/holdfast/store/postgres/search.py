"""Searching jobs and failures, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from holdfast.model.job import TERMINAL
from holdfast.store.cursors import read_cursor, write_cursor
from holdfast.store.postgres.arrays import Longs, Texts
from holdfast.store.postgres.bounds import bounds
from holdfast.store.postgres.connection import Params, PostgresSession
from holdfast.store.postgres.matching import (
    Branch,
    KindCount,
    branches,
    is_in_counters,
    parameters,
    whole,
)
from holdfast.store.postgres.rows import WIDTH, Row
from holdfast.store.postgres.state import StoreState
from holdfast.store.postgres.statements import completed
from holdfast.store.values import COUNT_CAP, FailurePage, FailureSearch, Order, Page, Search

FAILURE_ORDER = "FAILURE"
SEARCH_SETTINGS = b"""
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;
SET LOCAL enable_seqscan = on;
SET LOCAL enable_bitmapscan = on;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL jit = off;
SET LOCAL plan_cache_mode = force_custom_plan
"""
"""Searches are planned for their filters, with every scan, in one snapshot. A page is short:
its rows are looked up one by one, where the planner would join whole tables for a rare filter."""

ANY_SIZE = 2**62
KIND_PARAMETERS = ("types", "queues", "priorities", "low", "high", "plain")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START: dict[str, object] = {"xid": None, "seq": None}
_GROUPS = {0b011: 0, 0b101: 1, 0b110: 2}
"""GROUPING() has a bit for every column that is summed over."""


async def find(state: StoreState, search: Search) -> Page:
    """Return a page of jobs; see ``Store.find``."""

    async def read(session: PostgresSession) -> Page:
        await session.connection.execute(SEARCH_SETTINGS)
        return await _JobFinder(state, session, search).page()

    return await state.pool.atomically(read)


class _JobFinder:
    """One search in one snapshot: what it counts is what it lists."""

    def __init__(self, state: StoreState, session: PostgresSession, search: Search) -> None:
        self._state = state
        self._session = session
        self._search = search
        self._params = parameters(search)
        parts = _cursor_parts(search)
        self._place = (
            None if search.cursor is None else read_cursor(search.cursor, search.order, parts)
        )
        self._numbers: Sequence[int] = ()
        """The jobs that match, where they are listed to be counted; one above the cap at most."""

    async def page(self) -> Page:
        search = self._search
        params = {name: self._params[name] for name in KIND_PARAMETERS}
        counts = [KindCount(*row) for row in await self._session.run("find_kinds", params)]
        found = branches(search, counts)
        if not found:
            return Page((), None, 0)
        total, exact = await self._total(found)
        if not total:
            return Page((), None, 0)
        rows = await self._rows(found, sorts=exact and total <= COUNT_CAP)
        page = rows[: search.limit]
        parts = _cursor_parts(search)
        more = len(rows) > search.limit
        cursor = write_cursor(search.order, *map(int, page[-1][-parts:])) if more else None
        most = _most_bytes(search)
        left_out = {row[0]: row[WIDTH] for row in page if (row[WIDTH] or 0) > most}
        return Page(tuple(self._state.jobs(page)), cursor, total, exact, left_out)

    async def _rows(self, found: Sequence[Branch], *, sorts: bool) -> list[Row]:
        """Return one job more than the page has; jobs that are few may be sorted."""
        search = self._search
        params = {
            **self._params,
            "limit": search.limit + 1,
            "most_bytes": _most_bytes(search),
        }
        place = self._place
        if search.order is not Order.UPDATED_DESC:
            params["place"] = place[0] if place else None
            return await self._run(self._created(found, further=place is not None), params)
        params |= {"xid": str(place[0]), "seq": place[1]} if place else _START
        has_index = search.states or search.types or search.queues or search.namespace
        if sorts and self._numbers:
            listed = "SELECT unnest(%(numbers)s::bigint[]) AS number"
            return await self._run(_sorted(listed), {**params, "numbers": Longs(self._numbers)})
        if sorts and has_index:
            each = [f"SELECT number FROM {branch.sql(search)}" for branch in found]
            return await self._run(_sorted(" UNION ALL ".join(each)), params)
        return await self._run(self._newest(), params)

    def _created(self, found: Sequence[Branch], *, further: bool) -> str:
        """Return the statement for the order of submission: each branch in that order, merged."""
        search = self._search
        ascending = search.order is Order.CREATED_ASC
        way, after = ("ASC", ">") if ascending else ("DESC", "<")
        known = is_in_counters(search)
        each = []
        for branch in found:
            place = branch.place(search)
            most = min(search.limit + 1, branch.most) if known else search.limit + 1
            beyond = f" AND {place} {after} %(place)s::bigint" if further else ""
            each.append(
                f"(SELECT number FROM {branch.sql(search)}{beyond}"
                f" ORDER BY {place} {way} LIMIT {most})"
            )
        return f"""
            SELECT {{brief}}, octet_length(j.result), j.number
            FROM ({" UNION ALL ".join(each)}) AS found
            JOIN {{schema}}.job j USING (number) JOIN {{schema}}.body b USING (number)
            ORDER BY j.number {way} LIMIT %(limit)s::integer
        """

    def _newest(self) -> str:
        """Return the statement that reads the journal backwards until the page is full."""
        states = ", ".join(f"'{state}'" for state in self._search.states)
        moved = f" AND t.to_state IN ({states})" if states else ""
        return f"""
            SELECT {{brief}}, octet_length(j.result), t.xid::text, t.seq
            FROM {{schema}}.journal t
            JOIN {{schema}}.job j ON j.number = t.job AND j.xid = t.xid
            JOIN {{schema}}.body b ON b.number = t.job
            WHERE t.event IS NOT NULL{moved}
              AND NOT EXISTS (
                  SELECT FROM {{schema}}.journal n
                  WHERE n.job = t.job AND n.seq > t.seq AND n.event IS NOT NULL)
              AND (%(seq)s::bigint IS NULL
                   OR (t.xid, t.seq) < (%(xid)s::text::xid8, %(seq)s::bigint))
              AND {whole(self._search, ()).joined(self._search)}
            ORDER BY t.xid DESC, t.seq DESC
            LIMIT %(limit)s::integer
        """

    async def _total(self, found: Sequence[Branch]) -> tuple[int, bool]:
        if is_in_counters(self._search):
            return sum(branch.most for branch in found), True
        lists = self._search.order is Order.UPDATED_DESC  # the few that match are sorted then
        column, result = ("number", "array_agg(number)") if lists else ("", "count(*)")
        each = [f"SELECT {column} FROM {branch.sql(self._search)}" for branch in found]
        sql = f"""
            SELECT {result} FROM ({" UNION ALL ".join(each)} LIMIT %(limit)s::integer) AS found
        """
        ((found_all,),) = await self._run(sql, {**self._params, "limit": COUNT_CAP + 1})
        if lists:
            self._numbers = found_all or ()
        total = len(self._numbers) if lists else found_all
        return min(total, COUNT_CAP), total <= COUNT_CAP

    async def _run(self, sql: str, params: Params) -> list[Row]:
        return await self._session.run_once(completed(sql, self._state.settings.schema), params)


def _sorted(few: str) -> str:
    """Return the statement for the newest transitions of few jobs, which it sorts."""
    return f"""
        SELECT {{brief}}, octet_length(j.result), t.xid::text, t.seq
        FROM (
            WITH matching AS (
                SELECT n.number, n.xid FROM ({few}) AS every
                JOIN {{schema}}.job n USING (number)
            )
            SELECT number, xid FROM matching WHERE xid = %(xid)s::text::xid8
            UNION ALL (
                SELECT number, xid FROM matching
                WHERE %(xid)s::text IS NULL OR xid < %(xid)s::text::xid8
                ORDER BY xid DESC FETCH FIRST (%(limit)s::integer) ROWS WITH TIES
            )
        ) AS found
        CROSS JOIN LATERAL (
            SELECT l.xid, l.seq FROM {{schema}}.journal l
            WHERE l.job = found.number AND l.event IS NOT NULL ORDER BY l.seq DESC LIMIT 1
        ) AS t
        JOIN {{schema}}.job j USING (number) JOIN {{schema}}.body b USING (number)
        WHERE %(seq)s::bigint IS NULL OR (t.xid, t.seq) < (%(xid)s::text::xid8, %(seq)s::bigint)
        ORDER BY t.xid DESC, t.seq DESC LIMIT %(limit)s::integer
    """


async def failures(state: StoreState, search: FailureSearch) -> FailurePage:
    """Return a page of failed jobs with counts of all; see ``Store.failures``."""
    cursor = search.cursor
    place = read_cursor(cursor, FAILURE_ORDER, parts=2) if cursor is not None else None
    filters = _failure_filters(search)
    params = {
        **filters,
        "limit": search.limit + 1,
        "most_bytes": _most_bytes(search),
        "at": _EPOCH + timedelta(microseconds=place[0]) if place else None,
        "place": place[1] if place else None,
    }
    rows = await _run(state, "failures", params)
    page = rows[: search.limit]
    next_cursor = None
    if len(rows) > search.limit:
        at, number = page[-1][-2:]
        micros = (at - _EPOCH) // timedelta(microseconds=1)
        next_cursor = write_cursor(FAILURE_ORDER, micros, number)
    by_category, by_code, by_type = await _failure_counts(state, search, filters)
    total = sum(by_category.values())
    jobs = tuple(state.jobs(page))
    return FailurePage(jobs, next_cursor, total, by_category, by_code, by_type)


async def _failure_counts(
    state: StoreState, search: FailureSearch, filters: dict[str, object]
) -> list[dict[str, int]]:
    """Return how many jobs failed by category, by code and by type."""
    counts: tuple[dict[str, int], ...] = ({}, {}, {})
    source = "failure_totals" if _is_in_failure_counters(search) else "failure_counts"
    for group, *names, count in await _run(state, source, filters):
        column = _GROUPS[group]
        counts[column][names[column]] = count
    return [dict(sorted(found.items())) for found in counts]


def _most_bytes(search: Search | FailureSearch) -> int:
    return ANY_SIZE if search.most_bytes is None else search.most_bytes


async def _run(state: StoreState, name: str, params: Params) -> list[Row]:
    async def search(session: PostgresSession) -> list[Row]:
        await session.connection.execute(SEARCH_SETTINGS)
        return await session.run(name, params, prepare=False)

    return await state.pool.atomically(search)


def _cursor_parts(search: Search) -> int:
    return 2 if search.order is Order.UPDATED_DESC else 1


def _failure_filters(search: FailureSearch) -> dict[str, object]:
    return {
        "states": Texts(search.states),
        "categories": _texts(search.categories),
        "types": _texts(search.types),
        "queues": _texts(search.queues),
        **bounds(search.namespace),
        "code": search.code or None,
        "after": search.after,
        "before": search.before,
    }


def _texts(values: Sequence[str]) -> Texts | None:
    return Texts(values) if values else None


def _is_in_failure_counters(search: FailureSearch) -> bool:
    """Whether the counters hold the answer: every job that failed for good, at any time."""
    return search.after is None and search.before is None and TERMINAL.issuperset(search.states)
