"""Events of the running parts for observers: a name and fields, never a payload."""

from __future__ import annotations

from typing import Protocol

from holdfast.runtime.clock import Clock


class Observer(Protocol):
    """Receives the events of a worker. Called on the worker's loop: return fast, never raise."""

    def emit(self, event: str, **fields: object) -> None:
        """Receive an event such as ``job.completed`` with job_id, type, attempt and more."""
        ...


class Silent:
    """Ignores every event."""

    def emit(self, event: str, **fields: object) -> None:
        pass


class Several:
    """Passes every event on to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def emit(self, event: str, **fields: object) -> None:
        for observer in self._observers:
            observer.emit(event, **fields)


class Outage:
    """Reports when the store becomes unavailable, each new reason, and when it is back."""

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self._clock = clock
        self.observer = observer
        self.is_on = False
        """Whether the last call failed. Callers check it before ``over``, which saves the call."""
        self._since = 0.0
        self._reasons: set[str] = set()

    def failed(self, error: Exception) -> None:
        """Record that a call of the store failed."""
        if not self.is_on:
            self.is_on, self._since = True, self._clock.monotonic()
        if str(error) not in self._reasons:
            self._reasons.add(str(error))
            self.observer.emit("store.unavailable", error=str(error))

    def over(self) -> None:
        """Record that a call of the store succeeded."""
        if self.is_on:
            away = self._clock.monotonic() - self._since
            self.is_on = False
            self._reasons.clear()
            self.observer.emit("store.available", away=round(away, 3))
