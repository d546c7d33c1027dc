"""The SQL of a search, put together from constant parts; values are always parameters.

The planner takes an index only for what it can prove: a state must be a literal to use a partial
index, and one type or queue must be compared with ``=`` to be read in the order of submission. So a
search for two states reads each by its index, a page at most, and merges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from holdfast.model.job import State
from holdfast.store.namespaces import LAST
from holdfast.store.postgres.arrays import Ints, Texts
from holdfast.store.postgres.bounds import bounds
from holdfast.store.postgres.rows import document
from holdfast.store.values import Search

MAX_BRANCHES = 12
"""Combinations of a state and a type that are read each by its own index."""

_JOB = {
    "priorities": "j.priority = ANY (%(priorities)s::integer[])",
    "updated_after": "j.updated_at >= %(updated_after)s::timestamptz",
}
_BODY = {
    "tags": "b.tags @> %(tags)s::jsonb",
    "correlation_id": "b.correlation_id = %(correlation_id)s::text",
    "id_prefix": "b.id >= %(id_low)s::text AND b.id < %(id_high)s::text",
    "created_after": "b.created_at >= %(created_after)s::timestamptz",
    "created_before": "b.created_at < %(created_before)s::timestamptz",
}


class KindCount(NamedTuple):
    """How many jobs of one state and type there are: all, in the queues, of the priorities."""

    state: str
    type: str | None
    """None for every type that the search does not name."""
    total: int
    queued: int
    matching: int


class Branch(NamedTuple):
    """Some states and types of a search, all of them if there are too many to take one by one."""

    states: tuple[str, ...]
    types: tuple[str, ...]
    by_type: bool
    """Fewer jobs have the type than the state, or the search is for a namespace."""
    most: int
    """At most so many jobs can match."""

    def sql(self, search: Search) -> str:
        """Return tables and conditions of the jobs that match."""
        job, body = self._conditions(search)
        on_body = self._is_read_from_body(search)
        (body if on_body else job).extend(self._kinds(search, "b" if on_body else "j"))
        tables = [
            *(["{schema}.body b"] if body or on_body else []),
            *(["{schema}.job j"] if job else []),
        ]
        joined = " JOIN ".join(tables) + " USING (number)" * (len(tables) - 1)
        return f"{joined} WHERE {' AND '.join([*body, *job]) or 'true'}"

    def joined(self, search: Search) -> str:
        """Return the conditions on a job and its body that are both read."""
        job, body = self._conditions(search)
        return " AND ".join([*self._kinds(search, "j"), *job, *body]) or "true"

    def _conditions(self, search: Search) -> tuple[list[str], list[str]]:
        job = [_JOB[name] for name in _JOB if getattr(search, name)]
        if self.states:
            job.append(f"j.state IN ({', '.join(map(_literal, self.states))})")
        return job, [_BODY[name] for name in _BODY if getattr(search, name)]

    def _is_read_from_body(self, search: Search) -> bool:
        return (
            self.by_type
            or bool(search.id_prefix)
            or not (self.states or any(getattr(search, name) for name in _JOB))
        )

    def place(self, search: Search) -> str:
        """Return the column by which the index of its jobs is ordered.

        Jobs by their ids are sorted: the planner would rather read all jobs in their order.
        """
        if search.id_prefix:
            return "(b.number + 0)"
        return "b.number" if self._is_read_from_body(search) else "j.number"

    def _kinds(self, search: Search, table: str) -> Iterator[str]:
        if len(self.types) == 1:
            yield f"{table}.type = %(type{search.types.index(self.types[0])})s::text"
        elif self.types:
            yield f"{table}.type = ANY (%(types)s::text[])"
        if len(search.queues) == 1:
            yield f"{table}.queue = %(queue)s::text"
        elif search.queues:
            yield f"{table}.queue = ANY (%(queues)s::text[])"
        if search.namespace:
            yield f"{table}.queue >= %(low)s::text AND {table}.queue < %(high)s::text"
        elif search.namespace is not None:
            yield f"strpos({table}.queue, '/') = 0"


def branches(search: Search, counts: Sequence[KindCount]) -> list[Branch]:
    """Return the combinations of states and types that some job can have."""
    states = tuple(dict.fromkeys(map(str, search.states)))
    types = tuple(dict.fromkeys(search.types))
    single = [
        _branch(search, (state,) if state else (), (type_,) if type_ is not None else (), counts)
        for state, type_ in product(states or [""], types or [None])
    ]
    found = [branch for branch in single if branch.most]
    return found if len(found) <= MAX_BRANCHES else [whole(search, counts)]


def whole(search: Search, counts: Sequence[KindCount]) -> Branch:
    """Return all states and types of a search as one."""
    return _branch(search, tuple(search.states), tuple(search.types), counts)


def _branch(
    search: Search, states: tuple[str, ...], types: tuple[str, ...], counts: Iterable[KindCount]
) -> Branch:
    of_state = [count for count in counts if not states or count.state in states]
    of_type = [count for count in counts if not types or count.type in types]
    most = sum(count.matching for count in of_state if not types or count.type in types)
    in_state = sum(count.total for count in of_state)
    in_kind = sum(count.queued for count in of_type)
    by_type = bool(types or search.queues) and in_kind < in_state
    return Branch(states, types, by_type or bool(search.namespace), most)


def parameters(search: Search) -> dict[str, object]:
    """Return the parameters of every condition."""
    tags = document(search.tags or None)
    return {
        **{f"type{place}": type_ for place, type_ in enumerate(search.types)},
        "types": Texts(search.types) if search.types else None,
        "queue": search.queues[0] if search.queues else None,
        "queues": Texts(search.queues) if search.queues else None,
        **bounds(search.namespace),
        "states": Texts(search.states) if search.states else None,
        "priorities": Ints(search.priorities) if search.priorities else None,
        "tags": tags.decode() if tags else None,
        "correlation_id": search.correlation_id or None,
        "id_low": search.id_prefix,
        "id_high": search.id_prefix + LAST,
        "created_after": search.created_after,
        "created_before": search.created_before,
        "updated_after": search.updated_after,
    }


def is_in_counters(search: Search) -> bool:
    """Whether the counters know how many jobs match."""
    return not any(getattr(search, name) for name in (*_BODY, "updated_after"))


def _literal(state: str) -> str:
    return f"'{State(state)}'"
