"""Searches jobs page by page: by the most selective index, the rest as filters.

Statements are put together from the constant parts below, so that an unused filter costs
nothing; values are always bound as parameters.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from holdfast.model.measures import minute_of
from holdfast.store.cursors import read_cursor, write_cursor
from holdfast.store.namespaces import queue_range
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.decode import large_results, read_jobs
from holdfast.store.sqlite.encode import bounds, key_ranges, micros
from holdfast.store.values import (
    COUNT_CAP,
    FailurePage,
    FailureSearch,
    Order,
    Page,
    Search,
)

FAILURE_ORDER = "FAILURE"
_FIRST, _LAST = -1, 2**63 - 1

MAX_QUEUES = 12
"""Queues that are read each by its own index; the queues of a tenant may be many."""

Parameters = dict[str, object]


class Source(msgspec.Struct, frozen=True):
    """A way to reach candidates: a table and a condition, for each of some values."""

    sql: str
    place: str
    """The column by which its index orders the candidates of one value."""
    values: tuple[Parameters, ...]
    count: int
    """How many candidates there are; not exact beyond ``COUNT_CAP``."""
    alone: str = ""
    """The same without the job itself, which a count need not read."""
    covers: str = ""
    """The condition that all its candidates meet."""


_BY_STATE = "job INDEXED BY job_state WHERE state = :in_state"
_BY_MOVED = (
    "journal CROSS JOIN job ON job.seq = journal.seq AND job.moved = journal.number"
    " WHERE journal.number > :moved_after"
)
_BY_MOVED_INTO = (
    "journal CROSS JOIN job ON job.seq = journal.seq AND job.moved = journal.number"
    " WHERE journal.number > :moved_after"
    " AND journal.to_state IN (SELECT value FROM json_each(:states))"
)
_BY_TYPE = "job INDEXED BY job_type WHERE type = :of_type"
_BY_QUEUE = "job INDEXED BY job_queue WHERE queue = :in_queue"
_TAG = "tag WHERE tag.name = :tag_name AND tag.value = :tag_value"
_BY_TAG = _TAG.replace("tag ", "tag CROSS JOIN job ON job.seq = tag.seq ", 1)
_CORRELATION = (
    "body INDEXED BY body_correlation"
    " WHERE body.correlation IS NOT NULL AND body.correlation = :correlation"
)
_BY_CORRELATION = _CORRELATION.replace(" WHERE", " CROSS JOIN job ON job.seq = body.seq WHERE")
_BY_NAMESPACE = (
    "job INDEXED BY job_namespace WHERE instr(queue, '/') > 0"
    " AND substr(queue, 1, instr(queue, '/')) = :prefix"
)
_BY_ID = "job INDEXED BY job_id WHERE id >= :id_low AND id < :id_high"
_BY_SEQ = "job WHERE true"


def find(connection: sqlite3.Connection, search: Search) -> Page:
    """Return one page of matching jobs; see ``Store.find``."""
    return _Finder(connection, search).page()


class _Finder:
    def __init__(self, connection: sqlite3.Connection, search: Search) -> None:
        self._execute = connection.execute
        self._connection = connection
        self._search = search
        self._filters, self._parameters = _filters(search)
        self._ascending = search.order is Order.CREATED_ASC
        self._created = self._after(search.created_after), self._before(search.created_before)
        self._updated = self._after(search.updated_after)
        self._parameters["moved_after"] = self._updated

    def page(self) -> Page:
        search = self._search
        low, high = self._bounds()
        if search.cursor is not None:
            (last,) = read_cursor(search.cursor, search.order)
            low, high = (max(low, last), high) if self._ascending else (low, min(high, last))
        most = self._tallied(search)
        if not most:
            return Page((), None, 0)
        source = self._source()
        total, exact = (most, True) if _is_countable(search) else self._total(source)
        rows = self._rows(source, low, high, most)
        more = len(rows) > search.limit
        rows = rows[: search.limit]
        seqs = [seq for _, seq in rows]
        jobs = read_jobs(self._connection, seqs, search.most_bytes)
        left_out = large_results(self._connection, seqs, search.most_bytes)
        cursor = write_cursor(search.order, rows[-1][0]) if more else None
        return Page(tuple(jobs), cursor, total, exact, left_out)

    def _rows(self, source: Source, low: int, high: int, most: int) -> list[tuple[int, int]]:
        """Return (place, seq) of one job more than the page has, between two places.

        The search ends with the last of the jobs that can match.
        """
        place = source.place
        if self._search.order is Order.UPDATED_DESC:
            place = "job.moved"
            if source.count > COUNT_CAP:
                place = "journal.number"
                sql = _BY_MOVED_INTO if self._search.states else _BY_MOVED
                source = Source(sql, place, ({},), 0)
        sql = (
            f"SELECT {place}, job.seq FROM {source.sql}"  # noqa: S608  # constants above
            f" AND {place} > :low AND {place} < :high{self._filters.replace(source.covers, '')}"
            f" ORDER BY {place} {'ASC' if self._ascending else 'DESC'} LIMIT :limit"
        )
        limit = min(self._search.limit + 1, most)
        common = {"low": low, "high": high, "limit": limit, **self._parameters}
        found = [row for value in source.values for row in self._execute(sql, {**common, **value})]
        found.sort(reverse=not self._ascending)
        return found[: self._search.limit + 1]

    def _bounds(self) -> tuple[int, int]:
        """Return bounds of the places of all possible matches, in the order requested."""
        low, high = self._created
        if self._search.order is Order.UPDATED_DESC:
            low, high = max(low, self._updated), _LAST
        return low, high

    def _after(self, at: datetime | None) -> int:
        """Return a number such that all events of this time or later have a greater one."""
        if at is None:
            return _FIRST
        (number,) = self._execute(statement("marked_from"), (minute_of(at),)).fetchone()
        return _LAST if number is None else int(number) - 1

    def _before(self, at: datetime | None) -> int:
        """Return a number such that all events of earlier times have a smaller one."""
        if at is None:
            return _LAST
        (number,) = self._execute(statement("marked_to"), (minute_of(at),)).fetchone()
        return _FIRST if number is None else int(number) + 1

    def _total(self, source: Source) -> tuple[int, bool]:
        tables, filters = source.sql, self._filters.replace(source.covers, "")
        other = any(getattr(self._search, name) for name in _FILTERS)
        other = other or bool(self._search.id_prefix)
        if source.alone and not other and self._search.namespace is None:
            tables, filters = source.alone, filters.replace("job.seq", source.place)
        sql = (
            f"SELECT count(*) FROM (SELECT 1 FROM {tables}"  # noqa: S608  # constants above
            f" AND {source.place} > :low AND {source.place} < :high{filters} LIMIT :limit)"
        )
        common = {"low": self._created[0], "high": self._created[1], **self._parameters}
        total = 0
        for value in source.values:
            left = {**common, **value, "limit": COUNT_CAP + 1 - total}
            total += self._execute(sql, left).fetchone()[0]
        return min(total, COUNT_CAP), total <= COUNT_CAP

    def _source(self) -> Source:
        """Return the source with the fewest candidates.

        The others are counted over all namespaces, so few jobs of a namespace are enough.
        """
        namespace = self._search.namespace
        if not namespace:
            return min(self._sources(), key=_count)
        count = self._tallied(Search(namespace=namespace))
        own = Source(_BY_NAMESPACE, "job.seq", ({"prefix": queue_range(namespace).low},), count)
        return own if count <= COUNT_CAP else min(own, *self._sources(), key=_count)

    def _sources(self) -> Iterator[Source]:
        search = self._search
        if search.correlation_id:
            of: Parameters = {"correlation": search.correlation_id}
            count = self._counted(_CORRELATION, of)
            yield Source(
                _BY_CORRELATION, "body.seq", (of,), count, _CORRELATION, covers=_CORRELATED
            )
        if search.id_prefix:
            yield self._by_id(search.id_prefix)
        for place, (name, value) in enumerate(search.tags.items()):
            tag: Parameters = {"tag_name": name, "tag_value": value}
            count, covers = self._counted(_TAG, tag), _TAGGED.format(place)
            yield Source(_BY_TAG, "tag.seq", (tag,), count, _TAG, covers=covers)
        yield from self._kinds(search)
        if search.updated_after:
            (newest,) = self._execute(statement("newest_event")).fetchone()
            if newest - self._updated <= COUNT_CAP:
                yield Source(_BY_MOVED, "job.seq", ({},), newest - self._updated)
        yield Source(_BY_SEQ, "job.seq", ({},), self._tallied(Search()))

    def _by_id(self, prefix: str) -> Source:
        ranges = tuple(_range(*each) for each in key_ranges(prefix))
        count = sum(self._counted(_BY_ID, each) for each in ranges)
        return Source(_BY_ID, "job.seq", ranges, count, covers=_WITH_ID)

    def _kinds(self, search: Search) -> Iterator[Source]:
        if search.states:
            count = self._tallied(Search(states=search.states))
            yield Source(_BY_STATE, "job.seq", _each("in_state", search.states), count)
        if search.types:
            count = self._tallied(Search(types=search.types))
            yield Source(_BY_TYPE, "job.seq", _each("of_type", search.types), count)
        if 0 < len(search.queues) <= MAX_QUEUES:
            count = self._tallied(Search(queues=search.queues))
            yield Source(_BY_QUEUE, "job.seq", _each("in_queue", search.queues), count)

    def _counted(self, sql: str, value: Parameters) -> int:
        capped = f"SELECT count(*) FROM (SELECT 1 FROM {sql} LIMIT :limit)"  # noqa: S608
        (count,) = self._execute(capped, {**value, "limit": COUNT_CAP + 1}).fetchone()
        return int(count)

    def _tallied(self, search: Search) -> int:
        (count,) = self._execute(
            statement("count_tallied"),
            {
                "types": _array(search.types),
                "queues": _array(search.queues),
                "states": _array(search.states),
                "priorities": _array(search.priorities),
                **bounds(search.namespace),
            },
        ).fetchone()
        return int(count)


def _count(source: Source) -> int:
    return source.count


def _each(name: str, values: Iterable[str]) -> tuple[Parameters, ...]:
    return tuple({name: str(value)} for value in dict.fromkeys(values))


def _is_countable(search: Search) -> bool:
    return not (
        search.tags
        or search.correlation_id
        or search.id_prefix
        or search.created_after
        or search.created_before
        or search.updated_after
    )


_FILTERS = {
    "types": " AND job.type IN (SELECT value FROM json_each(:types))",
    "queues": " AND job.queue IN (SELECT value FROM json_each(:queues))",
    "states": " AND job.state IN (SELECT value FROM json_each(:states))",
    "priorities": " AND job.priority IN (SELECT value FROM json_each(:priorities))",
    "created_after": " AND job.created_at >= :created_after",
    "created_before": " AND job.created_at < :created_before",
    "updated_after": " AND job.updated_at >= :updated_after",
}
_WITHIN = " AND job.queue >= :low_name AND job.queue < :high_name"
_PLAIN = " AND instr(job.queue, '/') = 0"
_TAGGED = (
    " AND EXISTS (SELECT 1 FROM tag AS t{0}"
    " WHERE t{0}.name = :name{0} AND t{0}.value = :value{0} AND t{0}.seq = job.seq)"
)
_CORRELATED = " AND (SELECT correlation FROM body AS b WHERE b.seq = job.seq) = :correlation_id"


_WITH_ID = " AND (job.id >= :low_0 AND job.id < :high_0 OR job.id >= :low_1 AND job.id < :high_1)"


def _range(low: object, high: object) -> Parameters:
    return {"id_low": low, "id_high": high}


def _filters(search: Search) -> tuple[str, Parameters]:
    sql = ""
    parameters: Parameters = {}
    for name, condition in _FILTERS.items():
        value = getattr(search, name)
        if value:
            sql += condition
            parameters[name] = _array(value) if isinstance(value, tuple) else micros(value)
    if search.namespace is not None:
        sql += _WITHIN if search.namespace else _PLAIN
        parameters |= bounds(search.namespace)
    for place, (name, value) in enumerate(search.tags.items()):
        sql += _TAGGED.format(place)
        parameters |= {f"name{place}": name, f"value{place}": value}
    if search.id_prefix:
        sql += _WITH_ID
        for place, (low, high) in enumerate(key_ranges(search.id_prefix)):
            parameters |= {f"low_{place}": low, f"high_{place}": high}
    if search.correlation_id:
        sql += _CORRELATED
        parameters["correlation_id"] = search.correlation_id
    return sql, parameters


def _array(values: Sequence[object]) -> str | None:
    return msgspec.json.encode(values).decode() if values else None


def failures(connection: sqlite3.Connection, search: FailureSearch) -> FailurePage:
    """Return one page of failures with counts over all; see ``Store.failures``."""
    parameters: Parameters = {
        "states": _array(search.states) or "[]",
        "categories": _array(search.categories),
        "types": _array(search.types),
        "queues": _array(search.queues),
        **bounds(search.namespace),
        "code": search.code or None,
        "after": _FIRST if search.after is None else micros(search.after),
        "before": _LAST if search.before is None else micros(search.before),
    }
    within = "_within" if search.namespace else ""
    last: tuple[int, ...] = (_LAST, _LAST)
    if search.cursor is not None:
        last = read_cursor(search.cursor, FAILURE_ORDER, parts=2)
    page = {**parameters, "at": last[0], "seq": last[1], "limit": search.limit + 1}
    rows = connection.execute(statement(f"failures{within}"), page).fetchall()
    more = len(rows) > search.limit
    rows = rows[: search.limit]
    counted = Counter[tuple[str, str, str]]()
    for category, code, type_ in connection.execute(
        statement(f"failure_counts{within}"), parameters
    ):
        counted[category, code, type_] += 1
    return FailurePage(
        jobs=tuple(read_jobs(connection, [seq for _, seq in rows], search.most_bytes)),
        next_cursor=write_cursor(FAILURE_ORDER, *rows[-1]) if more else None,
        total=counted.total(),
        by_category=_summed(counted, 0),
        by_code=_summed(counted, 1),
        by_type=_summed(counted, 2),
    )


def _summed(counted: Mapping[tuple[str, str, str], int], place: int) -> dict[str, int]:
    summed = Counter[str]()
    for key, count in counted.items():
        summed[key[place]] += count
    return dict(sorted(summed.items()))
