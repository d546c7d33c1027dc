"""Long lists in parts: ten thousand queues must not become ten thousand rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from holdfast.dashboard.visits import Visit

T = TypeVar("T")

PART = 100
"""Rows of one page."""


class ListPart(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of a list a page shows, counted from one."""

    first: int
    last: int
    total: int

    @property
    def before(self) -> int | None:
        """Where the part before begins, None for the first part."""
        return max(0, self.first - 1 - PART) if self.first > 1 else None

    @property
    def after(self) -> int | None:
        """Where the next part begins, None for the last part."""
        return self.last if self.last < self.total else None


def part_of(visit: Visit, rows: Sequence[T]) -> tuple[tuple[T, ...], ListPart]:
    """Return the rows that the address asks for with ``from``."""
    given = visit.asked("from")
    start = int(given) if given.isdecimal() and given.isascii() and len(given) < 10 else 0
    start = start if start < len(rows) else 0
    shown = tuple(rows[start : start + PART])
    return shown, ListPart(first=start + 1, last=start + len(shown), total=len(rows))
