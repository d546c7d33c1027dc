"""The only module that reads a clock; everything else receives one."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is recorded, monotonic time for durations."""

    def now(self) -> datetime:
        """Return the time of day, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._now = start
        self._shift = timedelta(0)

    def now(self) -> datetime:
        return self._now + self._shift

    def monotonic(self) -> float:
        return (self._now - self._start).total_seconds()

    def advance(self, by: timedelta | float) -> None:
        """Move forwards, or backwards, by a span or by seconds."""
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)

    def set(self, moment: datetime) -> None:
        """Set the time."""
        self._now = moment - self._shift

    def shift(self, by: timedelta) -> None:
        """Set the time of day forward or back; the monotonic time goes on."""
        self._shift += by
