"""Growing delays between tries while something is unavailable."""

from __future__ import annotations

from holdfast.runtime.randomness import Randomness

LONGEST = 2.0
"""The longest delay without jitter, in seconds, unless a caller chooses another."""
LONGEST_WITH_JITTER = 1.5 * LONGEST


class GrowingDelay:
    """The delay before the next try: longer each time, up to a limit, with jitter."""

    def __init__(
        self, randomness: Randomness, *, first: float = 0.05, longest: float = LONGEST
    ) -> None:
        self._randomness = randomness
        self._first = self._delay = first
        self._longest = longest

    def next(self) -> float:
        """Return the seconds to wait now."""
        delay = self._delay * (0.5 + self._randomness.fraction())
        self._delay = min(2 * self._delay, self._longest)
        return delay

    def over(self) -> None:
        """Start again with the first delay."""
        self._delay = self._first
