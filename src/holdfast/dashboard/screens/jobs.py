"""The list of jobs: one search box, states with counts, fifty rows."""

from __future__ import annotations

from datetime import datetime
from typing import cast

import msgspec

from holdfast.api.jobs import visible_page
from holdfast.dashboard.known import known_values
from holdfast.dashboard.replies import WebReply
from holdfast.dashboard.search import (
    QUALIFIERS,
    SearchQuery,
    completed_name,
    completions,
    parse,
    with_state,
)
from holdfast.dashboard.states import STATES, StateLook
from holdfast.dashboard.visits import ScreenRoute, Visit
from holdfast.errors import NotFoundError, ValidationError
from holdfast.model.results import JobCounts
from holdfast.model.status import JobStatus
from holdfast.operations.filters import JobFilter
from holdfast.operations.operations import Operations

ROWS = 50
COUNTED = frozenset({"types", "queues", "priorities", "states"})
"""Filters by which the store counts."""


class StateTab(msgspec.Struct, frozen=True, kw_only=True):
    """A state to choose, with its number of jobs where that is known."""

    label: str
    look: StateLook | None
    query: str
    count: int | None
    more: bool
    """Whether there are at least so many."""
    chosen: bool


class JobsView(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs."""

    search: SearchQuery
    tabs: tuple[StateTab, ...]
    jobs: tuple[JobStatus, ...]
    total: int
    exact: bool
    next_cursor: str | None
    cursor: str
    as_of: datetime
    qualifiers: dict[str, str]
    is_empty: bool
    """Whether the store has no jobs at all."""


async def known_names(operations: Operations) -> tuple[list[str], list[str]]:
    """Return the job types and queues that the store knows."""
    stats = await operations.stats(breakdown_by=["TYPE", "QUEUE"])
    return list(stats.by_type or {}), list(stats.by_queue or {})


async def read_search(visit: Visit, text: str) -> SearchQuery:
    """Read a search; patterns match what the store knows."""
    types, queues = await known_names(visit.operations) if _has_pattern(text) else ([], [])
    return parse(text, now=visit.now, types=types, queues=queues)


def _has_pattern(text: str) -> bool:
    """Whether a search may have patterns, or words, that only the known names resolve."""
    return any("*" in word or "?" in word or ":" not in word for word in text.split())


async def jobs(visit: Visit) -> JobsView | tuple[str, ...]:
    """Return a page of jobs, or lead to the one job that was searched for."""
    text, cursor = visit.asked("q"), visit.asked("cursor")
    search, as_of = await read_search(visit, text), visit.now
    if search.job_id:
        try:
            await visit.operations.job(search.job_id)
        except NotFoundError:
            search = msgspec.structs.replace(
                search, faults=(*search.faults, f"there is no job {search.job_id}")
            )
        else:
            return ("jobs", search.job_id)
    found: tuple[JobStatus, ...] = ()
    total, exact, after = 0, True, None
    if not search.faults:
        try:
            page = await visit.operations.search(
                {**search.filter, "limit": ROWS, "cursor": cursor or None}
            )
        except ValidationError as error:
            faults = tuple(f"{fault.field} {fault.message}" for fault in error.faults)
            search = msgspec.structs.replace(search, faults=faults)
        else:
            page = visible_page(page, traces=visit.caller.traces)
            found, total, exact = page.jobs, page.total_count, page.total_exact
            after = page.next_cursor
    return JobsView(
        search=search,
        tabs=_tabs(search, await _counts(visit, search), total=total, exact=exact),
        jobs=found,
        total=total,
        exact=exact,
        next_cursor=after,
        cursor=cursor,
        as_of=as_of,
        qualifiers=QUALIFIERS,
        is_empty=not text and not found and not cursor,
    )


async def _counts(visit: Visit, search: SearchQuery) -> JobCounts | None:
    """Return how many jobs of each state match, where the store has counted that.

    For other filters it would read a thousand jobs; there, the chosen state has its total.
    """
    if search.faults or not visit.may("countJobs") or set(search.filter) - COUNTED:
        return None
    wanted = {name: value for name, value in search.filter.items() if name != "states"}
    try:
        return await visit.operations.count(cast("JobFilter", wanted))
    except ValidationError:
        return None


def _tabs(
    search: SearchQuery, counts: JobCounts | None, *, total: int, exact: bool
) -> tuple[StateTab, ...]:
    chosen = search.states
    every = counts.total if counts is not None else None if chosen or search.faults else total
    more = not counts.total_exact if counts is not None else not exact
    tabs = [
        StateTab(
            label="All",
            look=None,
            query=with_state(search.text, ""),
            count=every,
            more=more,
            chosen=not chosen and not search.faults,
        )
    ]
    for name, look in STATES.items():
        known = total if chosen == (name,) and not search.faults else None
        if counts is not None:
            known = counts.by_state.get(look.state, 0)
        tabs.append(
            StateTab(
                label=look.label,
                look=look,
                query=with_state(search.text, look.slug),
                count=known,
                more=counts is None and not exact,
                chosen=name in chosen,
            )
        )
    return tuple(tabs)


MOST_COMPLETED = 12


async def complete(visit: Visit) -> WebReply:
    """Return what the last word of a search can become, from what the store knows."""
    text = visit.asked("q")
    found = completions(text, await known_values(visit, completed_name(text)))[:MOST_COMPLETED]
    return WebReply(body=msgspec.json.encode(found), media_type="application/json")


SCREENS = (
    ScreenRoute(
        path="/complete", title="", template="", call="listJobs", view=complete, live=False
    ),
    ScreenRoute(
        path="/jobs",
        title="Jobs",
        template="jobs.html",
        call="listJobs",
        view=jobs,
        section="jobs",
        reads=4,
    ),
)
