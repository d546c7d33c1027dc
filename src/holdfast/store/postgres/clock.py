"""The server's time without a round trip for every reading."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.runtime.clock import Clock, SystemClock

REFRESH_AFTER = 5.0
"""Seconds after which the estimate is checked against the server, whose clock may be set."""

SET_BACK = timedelta(seconds=2)
"""An instant that lies further ahead was written before the server's clock was set back."""


class ServerClock:
    """An estimate from the server's last answer and this machine's monotonic clock.

    The local time of day is never read: a machine that is a day off changes nothing. A clock
    other than the system's (in a test) replaces the server's altogether.
    """

    def __init__(self, clock: Clock | None) -> None:
        self.given = None if clock is None or isinstance(clock, SystemClock) else clock
        self.ticks = (clock or SystemClock()).monotonic
        """Returns monotonic seconds, as ``observe`` expects them."""
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
    def override(self) -> datetime | None:
        """The parameter ``now`` of statements: null for the server's own time, except in tests."""
        return None if self.given is None else self.given.now()

    @property
    def is_stale(self) -> bool:
        """Whether the estimate should be checked."""
        if self.given is not None:
            return False
        return self._seen is None or self.ticks() - self._checked > REFRESH_AFTER

    def observe(self, at: datetime, requested: float) -> None:
        """Record the server's answer to a request made at a monotonic instant.

        The server read its clock between request and answer. The estimate changes only when it
        lies outside of that span, so that it does not jump to and fro.
        """
        answered = self.ticks()
        latest = at + timedelta(seconds=answered - requested)
        if self._seen is None or not at <= self._at(answered) <= latest:
            self._seen = (at + (latest - at) / 2, answered)
        self._checked = answered

    def advance_to(self, at: datetime) -> None:
        """Return no earlier time than an instant that was read from the database.

        An instant from before the clock was set back changes nothing.
        """
        ticks = self.ticks()
        if self.given is not None or self._seen is None:
            return
        if self._at(ticks) < at < self._at(ticks) + SET_BACK:
            self._seen = (at, ticks)

    def _at(self, ticks: float) -> datetime:
        assert self._seen is not None
        at, seen = self._seen
        return at + timedelta(seconds=ticks - seen)
