"""How long a job is kept after its end: BullMQ's options removeOnComplete and removeOnFail.

True and 0 delete the job at once, false keeps it, a number keeps so many of the newest jobs of its
queue, and an object limits age and count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from holdfast.errors import Fault
from holdfast.model.times import parse_duration, shown

MANY = 10_000
"""Keeping more jobs than this deserves a warning."""
_MOST = 10**9


class RemovalRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which ended jobs of a queue are kept when a job with this rule ends."""

    age: int | float | None = None
    """Seconds after which an ended job is deleted."""
    count: int | None = None
    """How many ended jobs are kept."""
    limit: int | None = None
    """How many jobs one end deletes because of their age."""


Removal = bool | int | RemovalRule
"""What a submission may say about keeping its job."""

_EXPECTED = "must be true, false, a number from 0, or an object of age, count and limit"


def read_removal(field: str, value: object) -> tuple[Removal | None, list[Fault]]:
    """Read an option as a caller gave it: its value, or the faults."""
    if isinstance(value, RemovalRule):
        value = msgspec.to_builtins(value)
    if isinstance(value, bool):
        return value, []
    if isinstance(value, int):
        if 0 <= value <= _MOST:
            return value, []
        return None, [Fault(field, "OUT_OF_RANGE", f"{_EXPECTED}, got {shown(value)}")]
    if not isinstance(value, Mapping):
        return None, [Fault(field, "INVALID", f"{_EXPECTED}, got {shown(value)}")]
    return _rule(field, cast("Mapping[object, object]", value))


def removal_faults(field: str, *, supported: bool) -> list[Fault]:
    """Return the fault of an option that the store does not know."""
    if supported:
        return []
    message = "is an option of jobs on Redis; here the retention of the app says how jobs are kept"
    return [Fault(field, "UNSUPPORTED", message)]


def removal_warnings(on_complete: Removal | None, on_fail: Removal | None) -> tuple[str, ...]:
    """Return the warnings about options that keep very many jobs."""
    counts = {"remove_on_complete": _count(on_complete), "remove_on_fail": _count(on_fail)}
    return tuple(
        f"{field} keeps {count} jobs: above {MANY}, ended jobs take much memory"
        for field, count in counts.items()
        if count > MANY
    )


def _count(option: Removal | None) -> int:
    count = option.count if isinstance(option, RemovalRule) else option
    return int(count or 0)


def _rule(field: str, given: Mapping[object, object]) -> tuple[RemovalRule | None, list[Fault]]:
    faults: list[Fault] = []
    values: dict[str, object] = {}
    for name, value in given.items():
        part = f"{field}.{name!s:.60}"
        try:
            values[str(name)] = _part(name, value)
        except KeyError:
            faults.append(Fault(part, "UNKNOWN_FIELD", "is not age, count or limit"))
        except ValueError as error:
            faults.append(Fault(part, "OUT_OF_RANGE", str(error)))
    if not faults and not values.keys() & {"age", "count"}:
        faults.append(Fault(field, "REQUIRED", "must have an age or a count"))
    return (None, faults) if faults else (msgspec.convert(values, RemovalRule), [])


def _part(name: object, value: object) -> float:
    if name == "age":
        seconds = parse_duration(value).total_seconds()
        return int(seconds) if seconds.is_integer() else seconds
    least = _LEAST[name]
    if type(value) is not int or not least <= value <= _MOST:
        raise ValueError(f"must be a whole number from {least} to a billion, got {shown(value)}")
    return value


_LEAST: Mapping[object, int] = {"count": 0, "limit": 1}
