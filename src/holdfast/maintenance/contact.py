"""Whether the store can be reached, and has been for a moment.

A store that was away kept heartbeats and answers away as well. When it is back they go first: a
lease that ran out meanwhile says nothing about its holder.
"""

from __future__ import annotations

from holdfast.runtime.clock import Clock

SILENCE = 1.5
"""Seconds without an answer after which the store counts as away."""

MOMENT = 0.5
"""Seconds that heartbeats and answers have once it is back."""


class Contact:
    """Told of every answer to a regular call; knows when there was none for too long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard = clock.monotonic()
        self._since = float("-inf")

    def heard(self) -> None:
        """Hear that the store answered."""
        now = self._clock.monotonic()
        if now - self._heard > SILENCE:
            self._since = now
        self._heard = now

    @property
    def is_steady(self) -> bool:
        """Whether the store answers, and those who waited for it had their turn."""
        now = self._clock.monotonic()
        return self._since + MOMENT <= now <= self._heard + SILENCE
