"""Search filters as keyword arguments, checked and turned into the searches of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, TypeVar

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import FailureCategory, Priority, State
from holdfast.model.payload import clean
from holdfast.model.times import Moment, Span, parse_duration, parse_timestamp
from holdfast.model.validation import MAX_TAGS
from holdfast.store import FailureSearch, Order, Search

T = TypeVar("T")
MAX_PAGE = 1000
MAX_VALUES = 1000
"""A filter matches one of so many values."""
MAX_GROUP = 64
"""Characters of the id of a failure group."""


class JobFilter(TypedDict, total=False):
    """Which jobs to list; all filters must match."""

    types: Sequence[str]
    """A type that ends with ``*`` stands for all that begin so: ``email.*``."""
    queues: Sequence[str]
    states: Sequence[State | str]
    priorities: Sequence[Priority | str | int]
    tags: Mapping[str, str]
    correlation_id: str
    id_prefix: str
    """Only jobs whose id begins with this."""
    code: str
    """Only jobs that failed with this code, or with codes that begin so if it ends with ``*``;
    without ``states``, those failed now."""
    worker: str
    """Only jobs of this worker, or of workers that begin so if it ends with ``*``; without
    ``states``, those that run."""
    created_after: Moment
    created_before: Moment
    updated_after: Moment
    group: str
    """Only jobs whose failure is of this group; without ``states``, those failed now."""
    order: Order | str
    cursor: str | None
    limit: int


class TimeRange(TypedDict, total=False):
    """From a time on, and before a time; either may be absent."""

    after: Moment
    before: Moment


class Pagination(TypedDict, total=False):
    """Which page of a list."""

    cursor: str | None
    limit: int


class FailureFilter(TypedDict, total=False):
    """Which failures to list."""

    states: Sequence[State | str]
    failure_category: Sequence[FailureCategory | str]
    types: Sequence[str]
    queues: Sequence[str]
    error_code: str
    after: Moment
    before: Moment
    cursor: str | None
    limit: int
    time_range: TimeRange | Span
    """When they failed: bounds, or how long ago at most."""
    pagination: Pagination


def must_select_once(ids: object, wanted: object, field: str) -> None:
    """ValidationError unless either ids or a filter say which jobs to change."""
    if (ids is None) != (wanted is None):
        return
    both = "excludes filter: name jobs by id, or select them, but not both"
    neither = "must be given, or filter: name jobs by id, or select them"
    message = neither if ids is None else both
    raise ValidationError([Fault(field, "CONFLICT", message)])


def job_search(wanted: JobFilter) -> Search:
    """Check a job filter; ValidationError lists all its faults."""
    reader = _FilterReader(wanted, JobFilter)
    reader.text("group", most=MAX_GROUP)
    reader.text("code")
    reader.text("worker")
    search = Search(
        types=reader.texts("types"),
        queues=reader.texts("queues"),
        states=reader.each("states", State),
        priorities=reader.each("priorities", _level),
        tags=reader.tags(),
        correlation_id=reader.text("correlation_id"),
        id_prefix=reader.text("id_prefix"),
        created_after=reader.moment("created_after"),
        created_before=reader.moment("created_before"),
        updated_after=reader.moment("updated_after"),
        order=reader.one("order", Order, Order.CREATED_DESC),
        cursor=reader.cursor(),
        limit=reader.limit(),
    )
    reader.finish()
    return search


def failure_search(wanted: FailureFilter, *, now: datetime) -> FailureSearch:
    """Check a failure filter; ValidationError lists all its faults."""
    reader = _FilterReader(wanted, FailureFilter)
    reader.unfold("pagination", Pagination)
    if isinstance(wanted.get("time_range", {}), Mapping):
        reader.unfold("time_range", TimeRange)
    else:
        reader.since("time_range", now)
    search = FailureSearch(
        states=reader.each("states", _failed_state) or FailureSearch().states,
        categories=reader.each("failure_category", FailureCategory),
        types=reader.texts("types"),
        queues=reader.texts("queues"),
        code=reader.text("error_code"),
        after=reader.moment("after"),
        before=reader.moment("before"),
        cursor=reader.cursor(),
        limit=reader.limit(),
    )
    reader.finish()
    return search


def _level(value: str | int) -> int:
    if isinstance(value, bool):
        raise ValueError(value)
    return int(Priority[value]) if isinstance(value, str) else int(Priority(value))


def _failed_state(value: str) -> State:
    state = State(value)
    if state not in (State.FAILED, State.DEAD_LETTER, State.RETRYING):
        raise ValueError(f"{state} is not a failure state")
    return state


class _FilterReader:
    """Reads a filter field by field and collects its faults."""

    def __init__(self, wanted: Mapping[str, object], known: type) -> None:
        self._wanted = dict(wanted)
        self._faults = [
            Fault(clean(str(name), 60), "UNKNOWN_FIELD", "is not a filter")
            for name in wanted
            if name not in known.__annotations__
        ]

    def unfold(self, field: str, known: type) -> None:
        """Read the fields of a group as if they were given beside it."""
        group = self._wanted.pop(field, None) or {}
        if not isinstance(group, Mapping):
            self._fault(field, "INVALID", f"must be an object, got {group!r:.60}")
            return
        for name, value in group.items():
            if name not in known.__annotations__:
                self._fault(f"{field}.{name}"[:128], "UNKNOWN_FIELD", "is not a filter")
            else:
                self._add(name, value, field)

    def since(self, field: str, now: datetime) -> None:
        """Read a duration up to now as the time it begins."""
        try:
            self._add("after", now - parse_duration(self._wanted.pop(field)), field)
        except (ValueError, OverflowError) as error:
            self._fault(field, "INVALID_DURATION", str(error))

    def _add(self, name: str, value: object, group: str) -> None:
        if name in self._wanted:
            self._fault(name, "CONFLICT", f"must not be given beside {group}")
        self._wanted[name] = value

    def finish(self) -> None:
        if self._faults:
            raise ValidationError(self._faults)

    def texts(self, field: str) -> tuple[str, ...]:
        return self.each(field, _text)

    def text(self, field: str, *, most: int | None = None) -> str:
        value = self._wanted.get(field)
        text = self._read(field, _text, value, "") if value is not None else ""
        if most is not None and len(text) > most:
            message = f"must be at most {most} characters, got {len(text)}"
            self._fault(field, "TOO_LONG", message)
        return text

    def each(self, field: str, read: Callable[[Any], T]) -> tuple[T, ...]:
        values = self._wanted.get(field)
        if values is None:
            return ()
        if isinstance(values, str) or not isinstance(values, Sequence):
            self._fault(field, "INVALID", f"must be a list, got {values!r:.60}")
            return ()
        if len(values) > MAX_VALUES:
            message = f"must have at most {MAX_VALUES} values, got {len(values)}"
            self._fault(field, "TOO_MANY", message)
            return ()
        found = (self._read(field, read, value, None) for value in values)
        return tuple(value for value in found if value is not None)

    def one(self, field: str, read: Callable[[Any], T], default: T) -> T:
        value = self._wanted.get(field)
        return default if value is None else self._read(field, read, value, default)

    def tags(self) -> dict[str, str]:
        value = self._wanted.get("tags")
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._fault("tags", "INVALID", f"must be a map of strings, got {value!r:.60}")
            return {}
        if len(value) > MAX_TAGS:
            message = f"must have at most {MAX_TAGS} tags, got {len(value)}"
            self._fault("tags", "TOO_MANY", message)
            return {}
        return {
            self._read("tags", _text, name, ""): self._read("tags", _text, tag, "")
            for name, tag in value.items()
        }

    def moment(self, field: str) -> datetime | None:
        value = self._wanted.get(field)
        if value is None:
            return None
        try:
            return parse_timestamp(value)
        except ValueError as error:
            self._fault(field, "INVALID_TIMESTAMP", str(error))
            return None

    def cursor(self) -> str | None:
        value = self._wanted.get("cursor")
        return None if value is None else self._read("cursor", _text, value, None)

    def limit(self) -> int:
        value = self._wanted.get("limit", 100)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_PAGE:
            return value
        self._fault("limit", "OUT_OF_RANGE", f"must be 1 to {MAX_PAGE}, got {value!r:.60}")
        return 1

    def _read(self, field: str, read: Callable[[Any], T], value: object, default: T | None) -> T:
        try:
            return read(value)
        except (ValueError, KeyError, TypeError):
            self._fault(field, "INVALID", f"does not take {value!r:.60}")
            return default  # type: ignore[return-value]  # never used: finish() raises

    def _fault(self, field: str, code: str, message: str) -> None:
        self._faults.append(Fault(field, code, message))


def _text(value: object) -> str:
    if not isinstance(value, str) or clean(value) != value:
        raise ValueError(value)
    return value
