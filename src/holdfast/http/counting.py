"""What the service counts about itself: requests and how long they took."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from holdfast.runtime.clock import Clock

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counting:
    """Counters since the start of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.started_at = clock.now()
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        """(route, status) -> how many"""
        self.seconds: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        """Route -> how many took as long as each bucket."""
        self.sums: defaultdict[str, float] = defaultdict(float)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count one request that was answered."""
        self.requests[route, status] += 1
        self.sums[route] += seconds
        self.seconds[route][bisect_left(BUCKETS, seconds)] += 1
