"""Counts what the service refuses before it is a request, and logs it in sums.

A caller without a key decides how often this happens, so that a line for each would fill a disk.
"""

from __future__ import annotations

from collections import defaultdict

from holdfast.observe import Observer
from holdfast.runtime.clock import Clock

INTERVAL = 10.0
"""Seconds between two lines for the same reason."""


class Rejections:
    """The refused connections and heads of one server, by reason."""

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        """Reason -> how often, since the start of this process."""
        self._clock = clock
        self._observer = observer
        self._logged: dict[str, tuple[float, int]] = {}

    def add(self, reason: str, address: str) -> None:
        """Count one refusal; log it unless a line for its reason is younger than 10 s."""
        self.counts[reason] += 1
        at, _ = self._logged.get(reason, (float("-inf"), 0))
        if self._clock.monotonic() - at >= INTERVAL:
            self._log(reason, address)

    def flush(self) -> None:
        """Log what was counted since the last line of each reason, once that is 10 s old."""
        for reason, (at, logged) in list(self._logged.items()):
            if self.counts[reason] > logged and self._clock.monotonic() - at >= INTERVAL:
                self._log(reason, "several")

    def _log(self, reason: str, address: str) -> None:
        _, logged = self._logged.get(reason, (0.0, 0))
        total = self.counts[reason]
        self._logged[reason] = self._clock.monotonic(), total
        self._observer.emit("http.refused", reason=reason, count=total - logged, address=address)
