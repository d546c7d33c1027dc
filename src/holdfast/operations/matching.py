"""Finds jobs by filters that stores do not know: patterns of types, failures, workers.

A pattern of types becomes the types that have jobs. For the others jobs are read and compared, a
bounded number per page: a page may have fewer jobs than it could, and still a cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from msgspec.structs import replace

from holdfast.errors import Fault, ValidationError
from holdfast.model.failure_groups import group_of
from holdfast.model.job import Job, State
from holdfast.operations.filters import MAX_VALUES, JobFilter
from holdfast.store import Page, Search, Store
from holdfast.store.tenants import TenantStore

SCANNED = 1000
"""Jobs that one page reads and compares."""
READ = 500
"""Jobs that are read at once."""
FAILED = (State.FAILED, State.DEAD_LETTER)

Predicate = Callable[[Job], bool]


async def resolved(store: Store, search: Search) -> Search:
    """Return a search with the types that match patterns such as ``email.*``."""
    patterns = [type_[:-1] for type_ in search.types if type_.endswith("*")]
    if not patterns:
        return search
    if isinstance(store, TenantStore) and store.only_own:
        message = "must be whole types: only a key that sees all jobs may use patterns"
        raise ValidationError([Fault("types", "FORBIDDEN", message)])
    known = {tally.type for tally in (await store.stats(timedelta(0))).tallies}
    found = {type_ for type_ in known if type_.startswith(tuple(patterns))}
    types = sorted(found | set(search.types))
    if len(types) > MAX_VALUES:
        message = f"must match at most {MAX_VALUES} types, matches {len(types)}"
        raise ValidationError([Fault("types", "TOO_MANY", message)])
    return replace(search, types=tuple(types))


def narrowed(search: Search, wanted: JobFilter) -> Search:
    """Return a search with the states that filters mean unless states are given."""
    if search.states:
        return search
    if wanted.get("group") or wanted.get("code"):
        return replace(search, states=FAILED)
    return replace(search, states=(State.RUNNING,)) if wanted.get("worker") else search


async def find_matching(store: Store, search: Search, wanted: JobFilter) -> Page:
    """Return one page of the jobs that match a search and a filter."""
    search = await resolved(store, narrowed(search, wanted))
    matches = predicate(wanted)
    return await store.find(search) if matches is None else await _scanned(store, search, matches)


def predicate(wanted: JobFilter) -> Predicate | None:
    """Return what decides about a job that was read; None: the store has decided."""
    group, code, worker = (str(wanted.get(name) or "") for name in ("group", "code", "worker"))
    if not (group or code or worker):
        return None

    def matches(job: Job) -> bool:
        failure = job.failure
        if group and (failure is None or group_of(job.type, failure) != group):
            return False
        if code and (failure is None or not _named(failure.code, code)):
            return False
        return not worker or (job.lease is not None and _named(job.lease.worker, worker))

    return matches


def _named(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


async def _scanned(store: Store, search: Search, matches: Predicate) -> Page:
    skip, cursor = 0, None
    if search.cursor is not None:
        skip, cursor = _read(search.cursor)
    found: list[Job] = []
    left_out: dict[str, int] = {}
    for _ in range(SCANNED // READ):
        page = await store.find(replace(search, cursor=cursor, limit=READ))
        left_out |= page.left_out
        for place, job in enumerate(page.jobs[skip:], skip + 1):
            if matches(job):
                found.append(job)
            if len(found) == search.limit:
                return _page(found, f"{place}.{cursor or ''}", left_out)
        skip, cursor = 0, page.next_cursor
        if cursor is None:
            return _page(found, None, left_out)
    return _page(found, f"0.{cursor}", left_out)


def _page(jobs: Sequence[Job], cursor: str | None, left_out: dict[str, int]) -> Page:
    return Page(tuple(jobs), cursor, len(jobs), cursor is None, left_out)


def _read(cursor: str) -> tuple[int, str | None]:
    skip, dot, rest = cursor.partition(".")
    if not (dot and skip.isascii() and skip.isdigit() and len(skip) <= 4):
        raise ValidationError([Fault("cursor", "INVALID", "must come from a page of this search")])
    return int(skip), rest or None
