"""Reads as much of a damaged row as possible: one bad row must not stop a list or a service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from holdfast.model.job import DamagedJob, Job

LONGEST = 300
"""Characters of an error that are kept."""

R = TypeVar("R")
T = TypeVar("T")


def salvaged(
    row: Sequence[Any],
    valid: Sequence[Any],
    read: Callable[[tuple[Any, ...]], Job],
    error: Exception,
) -> DamagedJob:
    """Return the job of a row that cannot be read, with values of ``valid`` for what is damaged.

    ``valid`` is a row that ``read`` accepts. A column is damaged if it makes that row unreadable.
    """
    damaged = [i for i in range(len(valid)) if not _reads(_with(valid, i, row[i]), read)]
    kept = list(row)
    for i in damaged:
        kept[i] = valid[i]
    try:
        job = read(tuple(kept))
    except Exception:  # noqa: BLE001  # the columns contradict each other
        job = read(tuple(valid))
    fields = {name: getattr(job, name) for name in Job.__struct_fields__}
    return DamagedJob(**fields, damage=described(error))


def readable(rows: Iterable[R], read: Callable[[R], T]) -> Iterator[T]:
    """Read rows, and leave out those that cannot be read."""
    given = list(rows)
    try:
        return iter([read(row) for row in given])
    except Exception:  # noqa: BLE001  # whatever is wrong with one of them, the others are read
        return _each_readable(given, read)


def _each_readable(rows: Iterable[R], read: Callable[[R], T]) -> Iterator[T]:
    for row in rows:
        try:
            found = read(row)
        except Exception:  # noqa: BLE001, S112  # as above
            continue
        yield found


def described(error: BaseException) -> str:
    """Return an error as one short line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:LONGEST]


def _with(row: Sequence[Any], place: int, value: object) -> tuple[Any, ...]:
    return (*row[:place], value, *row[place + 1 :])


def _reads(row: tuple[Any, ...], read: Callable[[tuple[Any, ...]], Job]) -> bool:
    try:
        read(row)
    except Exception:  # noqa: BLE001  # any error means: damaged
        return False
    return True
