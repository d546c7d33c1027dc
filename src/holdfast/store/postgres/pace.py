"""Housekeeping whose cost grows while dead rows cannot be removed, kept to a share of the time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

SHARE = 20
"""A piece of it rests for this many times as long as it took."""


class Pace:
    """When to do something next: not too often, and never for most of the time."""

    def __init__(self, ticks: Callable[[], float], every: float = 0.0) -> None:
        self._ticks = ticks
        self._every = every
        self._next = 0.0
        self._took = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it may be done now."""
        return self._ticks() >= self._next

    async def keep(self, work: Awaitable[T]) -> T:
        """Await it, and take note of how long that took."""
        begun = self._ticks()
        self._next = begun + self._every  # for others, and should it fail
        done = await work
        ended = self._ticks()
        self._took = ended - begun
        self._next = ended + max(self._every, SHARE * self._took)
        return done

    def hurry(self) -> None:
        """Hear that much of it was left undone: it then rests for no longer than it took."""
        self._next = self._ticks() + self._took
