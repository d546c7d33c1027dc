"""One line for every reason why the store is away, and one when it is back."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.observe.observer import Observer


class Outage:
    """Told of tries that failed and of answers; passes on what is news."""

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self._clock = clock
        self._observer = observer
        self._since: float | None = None
        self._reasons: set[str] = set()

    def failed(self, error: Exception) -> None:
        """Hear that the store was not there."""
        if self._since is None:
            self._since = self._clock.monotonic()
        if str(error) not in self._reasons:
            self._reasons.add(str(error))
            self._observer.tell("store.unavailable", error=str(error))

    def over(self) -> None:
        """Hear that the store answered."""
        if self._since is not None:
            away = self._clock.monotonic() - self._since
            self._since = None
            self._reasons.clear()
            self._observer.tell("store.available", away=round(away, 3))
