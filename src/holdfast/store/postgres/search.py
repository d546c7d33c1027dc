"""Searching jobs and failures, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from holdfast.model.job import TERMINAL
from holdfast.store.cursors import read_cursor, write_cursor
from holdfast.store.postgres.arrays import Ints, Texts
from holdfast.store.postgres.connection import Params, PostgresSession
from holdfast.store.postgres.rows import Row, document
from holdfast.store.postgres.state import StoreState
from holdfast.store.values import COUNT_CAP, FailurePage, FailureSearch, Order, Page, Search

FAILURE_ORDER = "FAILURE"
SEARCH_SETTINGS = b"""
SET LOCAL enable_seqscan = on;
SET LOCAL enable_bitmapscan = on;
SET LOCAL plan_cache_mode = force_custom_plan
"""
"""Searches are planned for their filters, with every kind of scan."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START: dict[str, object] = {"xid": None, "seq": None}
_GROUPS = {0b011: 0, 0b101: 1, 0b110: 2}
"""GROUPING() has a bit for every column that is summed over."""


async def find(state: StoreState, search: Search) -> Page:
    """Return a page of jobs; see ``Store.find``."""
    filters = filters_of(search)
    updated = search.order is Order.UPDATED_DESC
    parts = 2 if updated else 1
    place = read_cursor(search.cursor, search.order, parts) if search.cursor is not None else None
    params = {**filters, "limit": search.limit + 1}
    if updated:
        params |= {"xid": str(place[0]), "seq": place[1]} if place else _START
    else:
        params |= {"place": place[0] if place else None}
    rows = await _run(state, f"find_{search.order.lower()}", params)
    page = rows[: search.limit]
    total, exact = await _count(state, search, filters)
    more = len(rows) > search.limit
    cursor = write_cursor(search.order, *map(int, page[-1][-parts:])) if more else None
    return Page(tuple(state.jobs(page)), cursor, total, exact)


async def _count(state: StoreState, search: Search, filters: dict[str, object]) -> tuple[int, bool]:
    if _is_in_counters(search):
        ((total,),) = await _run(state, "find_total", filters)
        return total, True
    counted = await _run(state, "find_count", {**filters, "limit": COUNT_CAP + 1})
    total = counted[0][0]
    return min(total, COUNT_CAP), total <= COUNT_CAP


async def failures(state: StoreState, search: FailureSearch) -> FailurePage:
    """Return a page of failed jobs with counts of all; see ``Store.failures``."""
    cursor = search.cursor
    place = read_cursor(cursor, FAILURE_ORDER, parts=2) if cursor is not None else None
    filters = _failure_filters(search)
    params = {
        **filters,
        "limit": search.limit + 1,
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


async def _run(state: StoreState, name: str, params: Params) -> list[Row]:
    async def search(session: PostgresSession) -> list[Row]:
        await session.connection.execute(SEARCH_SETTINGS)
        return await session.run(name, params, prepare=False)

    return await state.pool.atomically(search)


def filters_of(search: Search) -> dict[str, object]:
    """Return the parameters of ``matching.sql``."""
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


def _is_in_counters(search: Search) -> bool:
    return not (
        search.tags
        or search.correlation_id
        or search.created_after
        or search.created_before
        or search.updated_after
    )


def _is_in_failure_counters(search: FailureSearch) -> bool:
    """Whether the counters hold the answer: every job that failed for good, at any time."""
    return search.after is None and search.before is None and TERMINAL.issuperset(search.states)
