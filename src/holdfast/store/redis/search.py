"""Finding jobs page by page: scripts walk one index, a bounded number of entries per call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.model.job import Job, State
from holdfast.model.measures import Tally
from holdfast.store.cursors import read_cursor, write_cursor
from holdfast.store.redis import fields
from holdfast.store.redis.encode import pack
from holdfast.store.redis.read import read_tallies
from holdfast.store.redis.session import RedisSession
from holdfast.store.redis.settings import correlation_index, tag_index
from holdfast.store.values import COUNT_CAP, FailurePage, FailureSearch, Order, Page, Search

SCANNED = 1000
"""Index entries one script call looks at."""
FEWEST_SCANNED = 100
"""Entries that a call looks at although fewer jobs are wanted: a few cannot be read."""
IDS_SCANNED = 10_000
"""Ids one script call compares with a prefix."""
ID_CALLS, DATED_CALLS = 10, 5
"""Calls that a search for a prefix, or for dates, makes: there is no index by id or by time."""
MOST_STATES = 4
"""States that are read each by its own index."""
UNLIMITED = 1_000_000_000
FILTERS = (
    *("states", "types", "queues", "levels", "within", "id_prefix"),
    *("created_after", "created_before", "updated_after"),
)
"""Without one of them, and within all namespaces, every entry of the index matches."""
FAILURE_ORDER = "FAILURE"
MAX_POSITION = 1 << 53


async def find(session: RedisSession, search: Search) -> Page:
    """Return one page of matching jobs; see ``Store.find``."""
    start = None
    if search.cursor is not None:
        (start,) = read_cursor(search.cursor, search.order)
    walk = await _collected(session, search, start)
    more = len(walk.jobs) > search.limit
    cursor = write_cursor(search.order, walk.positions[search.limit - 1]) if more else None
    if not more and walk.stopped_at is not None:
        cursor = write_cursor(search.order, walk.stopped_at)
    total, exact = await _total(session, search, walk)
    return Page(tuple(walk.jobs[: search.limit]), cursor, total, exact, walk.left_out)


async def _collected(session: RedisSession, search: Search, start: int | None) -> _Walk:
    """Return one job more than the page has; of several states, each by its own index."""
    walks = []
    for each in _parts(search):
        walk = _Walk(session, _filters(each), each)
        await walk.collect(start, search.limit + 1)
        walks.append(walk)
    first = walks[0]
    if len(walks) > 1:
        first.merge(walks[1:], ascending=search.order is Order.CREATED_ASC)
    return first


def _parts(search: Search) -> list[Search]:
    few = 1 < len(set(search.states)) <= MOST_STATES and State.RUNNING not in search.states
    if not few or search.order is Order.UPDATED_DESC or search.tags or search.correlation_id:
        return [search]
    return [replace(search, states=(state,)) for state in dict.fromkeys(search.states)]


def _filters(search: Search) -> dict[str, object]:
    within = [tag_index(name, value) for name, value in search.tags.items()]
    if search.correlation_id:
        within.append(correlation_index(search.correlation_id))
    filters: dict[str, object] = {
        "states": [state.value for state in search.states],
        "types": list(search.types),
        "queues": list(search.queues),
        "levels": list(search.priorities),
        "namespace": fields.scope(search.namespace),
        "within": within,
    }
    if search.most_bytes is not None:
        filters["most_bytes"] = search.most_bytes
    if search.id_prefix:
        filters["id_prefix"] = search.id_prefix
    for name in ("created_after", "created_before", "updated_after"):
        moment = getattr(search, name)
        if moment is not None:
            filters[name] = fields.micros(moment)
    ascending = search.order is Order.CREATED_ASC
    return {**filters, "indexes": _indexes(search, within), "ascending": ascending, "tally": True}


def _indexes(search: Search, within: list[str]) -> list[str]:
    """Return the indexes that give the order; the script takes the smallest."""
    if search.order is Order.UPDATED_DESC:
        return ["moved"]
    if search.states == (State.RUNNING,) and not within:
        return [f"s:{State.RUNNING}"]
    states = [f"s:{state}" for state in search.states if state is not State.RUNNING]
    types = [f"t:{type_}" for type_ in search.types]
    return [
        *within,
        *(states if len(search.states) == 1 else ()),
        *(types if len(types) == 1 else ()),
        "created",
    ]


async def _total(session: RedisSession, search: Search, walk: _Walk) -> tuple[int, bool]:
    """Return how many jobs match, and whether that is exact: counters know all but tags and dates.

    Without the counters, up to ``COUNT_CAP`` jobs are counted.
    """
    dated = search.created_after or search.created_before or search.updated_after
    if not (search.tags or search.correlation_id or search.id_prefix or dated):
        return sum(tally.count for tally in walk.tallies if _matches(tally, search)), True
    if search.id_prefix:
        is_all = walk.stopped_at is None and len(walk.jobs) <= search.limit
        return walk.count, is_all and search.cursor is None
    if walk.stopped_at is not None:
        return min(walk.count, COUNT_CAP), False
    every = _Walk(session, _filters(search))
    await every.collect(None, 0, count=COUNT_CAP + 1)
    is_all = every.count <= COUNT_CAP and every.stopped_at is None
    return min(every.count, COUNT_CAP), is_all


def _matches(tally: Tally, search: Search) -> bool:
    return (
        (not search.types or tally.type in search.types)
        and (not search.queues or tally.queue in search.queues)
        and (not search.states or tally.state in search.states)
        and (not search.priorities or tally.priority in search.priorities)
    )


class _Walk:
    """A walk through an index, over several calls if need be."""

    def __init__(
        self, session: RedisSession, filters: dict[str, object], search: Search | None = None
    ) -> None:
        """With the search, it ends with the last of the jobs that can match by the counters."""
        self._session = session
        self._search = search
        by_id = "id_prefix" in filters
        dated = "created_after" in filters or "updated_after" in filters
        self._filters = {**filters, "look": IDS_SCANNED if by_id else SCANNED}
        is_everywhere = filters["namespace"] == fields.scope(None)
        self._is_filtered = not is_everywhere or any(map(filters.get, FILTERS))
        self._calls = ID_CALLS if by_id else DATED_CALLS if dated else UNLIMITED
        self.stopped_at: int | None = None
        """Where it stopped because it had made as many calls as it may."""
        self.tallies: list[Tally] = []
        self.jobs: list[Job] = []
        self.positions: list[int] = []
        self.left_out: dict[str, int] = {}
        self.count = 0

    def _most(self) -> int:
        """At most so many jobs can match."""
        if self._search is None:
            return UNLIMITED
        search = self._search
        return sum(tally.count for tally in self.tallies if _matches(tally, search))

    def merge(self, others: Sequence[_Walk], *, ascending: bool) -> None:
        """Add what other walks found, in the order of positions, as far as all of them went."""
        walks = [self, *others]
        stops = [walk.stopped_at for walk in walks if walk.stopped_at is not None]
        found = [pair for walk in walks for pair in zip(walk.positions, walk.jobs, strict=True)]
        if stops:
            self.stopped_at = min(stops) if ascending else max(stops)
            end = self.stopped_at
            found = [pair for pair in found if (pair[0] <= end if ascending else pair[0] >= end)]
        found.sort(key=lambda pair: pair[0], reverse=not ascending)
        self.positions, self.jobs = [place for place, _ in found], [job for _, job in found]
        for walk in others:
            self.left_out |= walk.left_out
            self.count += walk.count

    async def collect(self, start: int | None, jobs: int, *, count: int = 0) -> None:
        """Continue until so many jobs were read, and so many were counted."""
        position = start
        for _ in range(self._calls):
            left = jobs - len(self.jobs)
            want = {**self._filters, "jobs": left}
            if not self._is_filtered and not count:
                want["look"] = max(FEWEST_SCANNED, min(left, SCANNED))
            if position is not None:
                want["from"] = position
            found, positions, matching, last, tally, left_out = await self._session.call(
                "search", pack(want)
            )
            self.tallies = read_tallies(tally)
            self.left_out |= dict(zip(map(fields.text, left_out[::2]), left_out[1::2], strict=True))
            self.jobs += [self._session.read(reply) for reply in found]
            self.positions += map(_position, positions)
            self.count += matching
            done = len(self.jobs) >= min(jobs, self._most()) and self.count >= count
            if not last or done:
                return
            position = _position(last)
        self.stopped_at = position


def _position(score: bytes) -> int:
    """Read the score of an index, which another client may have made infinite."""
    return int(max(-MAX_POSITION, min(MAX_POSITION, float(score))))


async def failures(session: RedisSession, search: FailureSearch) -> FailurePage:
    """Return one page of failed jobs with counts by cause; see ``Store.failures``."""
    states = tuple(dict.fromkeys(search.states))
    few = len(states) <= 2
    matching: list[tuple[tuple[int, int], Job]] = []
    for group in [(state,) for state in states] if few else [states]:
        filters = _filters(
            Search(
                states=group,
                types=search.types,
                queues=search.queues,
                namespace=search.namespace,
                most_bytes=search.most_bytes,
            )
        )
        walk = _Walk(session, {**filters, "tally": False})
        await walk.collect(None, UNLIMITED)
        matching += [
            ((fields.micros(job.failure.at), number), job)
            for number, job in zip(walk.positions, walk.jobs, strict=True)
            if job.failure is not None and job.failure.at is not None and _failed(job, search)
        ]
    matching.sort(key=lambda entry: entry[0], reverse=True)
    rest = matching
    if search.cursor is not None:
        last = read_cursor(search.cursor, FAILURE_ORDER, parts=2)
        rest = [entry for entry in matching if entry[0] < last]
    page, more = rest[: search.limit], len(rest) > search.limit
    causes = [job.failure for _, job in matching if job.failure]
    return FailurePage(
        jobs=tuple(job for _, job in page),
        next_cursor=write_cursor(FAILURE_ORDER, *page[-1][0]) if more else None,
        total=len(matching),
        by_category=_counted([cause.category for cause in causes]),
        by_code=_counted([cause.code for cause in causes]),
        by_type=_counted([job.type for _, job in matching]),
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


def _counted(names: Sequence[str]) -> dict[str, int]:
    return {str(name): count for name, count in sorted(Counter(names).items())}
