"""The server's time, without asking it every time."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.runtime.clock import Clock, SystemClock

REFRESH_AFTER = 30.0
"""Seconds after which the estimate is checked against the server."""


class ServerClock:
    """An estimate from the server's last answer and this machine's monotonic clock.

    The local time of day is never looked at: a machine a day off changes nothing. A clock that
    is not the system's (a test's) takes the server's place altogether.
    """

    def __init__(self, clock: Clock | None) -> None:
        self.given = None if clock is None or isinstance(clock, SystemClock) else clock
        self.ticks = (clock or SystemClock()).monotonic
        """Returns monotonic seconds, to be handed to ``heard``."""
        self._seen: tuple[datetime, float] | None = None
        self._checked = 0.0

    def now(self) -> datetime:
        """Return the server's time, as exactly as this process knows it."""
        if self.given is not None:
            return self.given.now()
        if self._seen is None:
            raise RuntimeError("the store's time is known once it has been started")
        at, ticks = self._seen
        return at + timedelta(seconds=self.ticks() - ticks)

    @property
    def judged(self) -> datetime | None:
        """What statements are told: null, so that the server judges, unless a test does."""
        return None if self.given is None else self.given.now()

    @property
    def is_stale(self) -> bool:
        """Whether the estimate should be checked."""
        if self.given is not None:
            return False
        return self._seen is None or self.ticks() - self._checked > REFRESH_AFTER

    def heard(self, at: datetime, asked: float) -> None:
        """Take note of an answer to a question asked at a monotonic instant.

        The server looked at its clock somewhere in between. The estimate moves only when that
        proves it wrong, so that it does not jump to and fro.
        """
        answered = self.ticks()
        latest = at + timedelta(seconds=answered - asked)
        if self._seen is None or not at <= self._at(answered) <= latest:
            self._seen = (at + (latest - at) / 2, answered)
        self._checked = answered

    def saw(self, at: datetime) -> None:
        """Take note of an instant that has been: what comes next must not be older."""
        ticks = self.ticks()
        if self.given is None and self._seen is not None and self._at(ticks) < at:
            self._seen = (at, ticks)

    def _at(self, ticks: float) -> datetime:
        assert self._seen is not None
        at, seen = self._seen
        return at + timedelta(seconds=ticks - seen)
