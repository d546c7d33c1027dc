"""Growing pauses between tries at something that is away."""

from __future__ import annotations

from holdfast.runtime.randomness import Randomness


class GrowingDelay:
    """How long to wait before the next try: longer each time, up to a bound, never in step."""

    def __init__(
        self, randomness: Randomness, *, first: float = 0.05, longest: float = 2.0
    ) -> None:
        self._randomness = randomness
        self._first = self._pause = first
        self._longest = longest

    def next(self) -> float:
        """Return the seconds to wait now."""
        pause = self._pause * (0.5 + self._randomness.fraction())
        self._pause = min(2 * self._pause, self._longest)
        return pause

    def over(self) -> None:
        """Begin anew: what was away is back."""
        self._pause = self._first
