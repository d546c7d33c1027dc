"""How many jobs match a filter, by state: exact from the counters, else among the newest ones."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from msgspec.structs import replace

from holdfast.model.job import State
from holdfast.model.results import JobCounts
from holdfast.operations.batches import check_batch_filter
from holdfast.operations.filters import JobFilter, job_search
from holdfast.operations.matching import find_matching, predicate, resolved
from holdfast.store import Page, Search, Store

MOST_READ = 1000
"""Jobs that are read where the counters do not know."""


async def count_jobs(store: Store, wanted: JobFilter) -> JobCounts:
    """Return how many jobs match in each state; the states of the filter limit the list."""
    check_batch_filter(wanted)
    search = await resolved(store, job_search(wanted))
    if predicate(wanted) is not None:
        return await _compared(store, search, wanted)
    tallied = await _tallied(store, search)
    if _is_counted(search):
        return JobCounts(by_state=tallied, total=sum(tallied.values()))
    page = await store.find(replace(search, limit=MOST_READ, most_bytes=0))
    return _counted(page, max(page.total, len(page.jobs)))


async def _tallied(store: Store, search: Search) -> dict[State, int]:
    """Return the jobs by state as far as the counters know."""
    counts = Counter[State]()
    for tally in (await store.stats(timedelta(0))).tallies:
        if (
            (not search.types or tally.type in search.types)
            and (not search.queues or tally.queue in search.queues)
            and (not search.states or tally.state in search.states)
            and (not search.priorities or tally.priority in search.priorities)
        ):
            counts[tally.state] += tally.count
    return {state: counts[state] for state in State if counts[state] > 0}


def _is_counted(search: Search) -> bool:
    return not (
        search.tags
        or search.correlation_id
        or search.id_prefix
        or search.created_after
        or search.created_before
        or search.updated_after
    )


async def _compared(store: Store, search: Search, wanted: JobFilter) -> JobCounts:
    """Count among the jobs that one page compares."""
    page = await find_matching(store, replace(search, limit=MOST_READ, most_bytes=0), wanted)
    return _counted(page, len(page.jobs))


def _counted(page: Page, total: int) -> JobCounts:
    counts = Counter(job.state for job in page.jobs)
    complete = page.next_cursor is None
    by_state = {state: counts[state] for state in State if counts[state]}
    return JobCounts(
        by_state=by_state,
        total=total,
        total_exact=complete or (page.total_exact and total > len(page.jobs)),
        at_least=() if complete else tuple(by_state),
        complete=complete,
    )
