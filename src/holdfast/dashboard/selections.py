"""Which jobs an operation selected: as the search that finds them, or in words."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.dashboard.formats import plural
from holdfast.dashboard.states import STATES
from holdfast.model.bulk import BulkOperation
from holdfast.model.job import Priority

_NAMES = {
    "types": "type",
    "queues": "queue",
    "correlation_id": "correlation",
    "id_prefix": "id",
    "code": "code",
    "worker": "worker",
    "group": "group",
    "created_after": "after",
    "created_before": "before",
    "updated_after": "changed",
}
"""Filters and their qualifiers in the search box."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.*?:+,/@#")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs an operation looks at."""

    words: str
    query: str = ""
    """The search that finds them; empty: no search says it."""


def selection_of(operation: BulkOperation) -> Selection:
    """Return which jobs an operation selected."""
    if operation.filter is None:
        number = operation.id_count or 0
        return Selection(words=f"{plural(number, 'job')} selected by hand")
    terms = [_term(name, value) for name, value in operation.filter.items()]
    known = " ".join(term for term in terms if term)
    if not all(terms):
        return Selection(words=known or "a filter of the API")
    return Selection(words=known or "all jobs", query=known)


def _term(name: str, value: object) -> str:
    """Return a filter as the search box takes it; empty when it has no such qualifier."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    if name == "tags" and isinstance(value, Mapping):
        return " ".join(f"tag.{each}:{_quoted(str(of))}" for each, of in value.items())
    if name == "states":
        looks = [STATES[str(each)] for each in values if str(each) in STATES]
        return f"state:{','.join(look.slug for look in looks)}" if looks else ""
    if name == "priorities":
        return f"priority:{','.join(_priority(each) for each in values)}"
    if name not in _NAMES or not values:
        return ""
    return f"{_NAMES[name]}:{_quoted(','.join(str(each) for each in values))}"


def _priority(value: object) -> str:
    level = Priority(value).name if isinstance(value, int) else str(value)
    return level.lower()


def _quoted(value: str) -> str:
    return value if _PLAIN.issuperset(value.lower()) else f'"{value}"'
