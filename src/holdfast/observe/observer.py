"""What the running parts tell whoever listens: an event name and fields, never a payload."""

from __future__ import annotations

from typing import Protocol

from holdfast.runtime.clock import Clock


class Observer(Protocol):
    """Hears what a worker does. Called on the worker's loop: be quick, do not raise."""

    def emit(self, event: str, **fields: object) -> None:
        """Hear of an event such as ``job.completed`` with job_id, type, attempt and more."""
        ...


class Silent:
    """Hears everything and says nothing."""

    def emit(self, event: str, **fields: object) -> None:
        pass


class Several:
    """Passes everything on to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def emit(self, event: str, **fields: object) -> None:
        for observer in self._observers:
            observer.emit(event, **fields)


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
            self._observer.emit("store.unavailable", error=str(error))

    def over(self) -> None:
        """Hear that the store answered."""
        if self._since is not None:
            away = self._clock.monotonic() - self._since
            self._since = None
            self._reasons.clear()
            self._observer.emit("store.available", away=round(away, 3))
