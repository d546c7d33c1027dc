"""Events of the running parts for observers: a name and fields, never a payload."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
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


LONG_OUTAGE = 1.5
"""Seconds after which the end of an outage wakes those that wait. A single call that is refused
again and again while others succeed is not hurried."""

_VARYING = re.compile(r'\s*(at character \d+|\bLINE \d+:.*)|"[^"]*"|0x[0-9a-fA-F]+|\d+', re.DOTALL)
"""What differs between two texts of one reason: positions, names, numbers, statements."""


class Reasons:
    """The reasons that were reported, each once."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def is_new(self, error: Exception) -> bool:
        """Record the reason of an error; return whether it was not known."""
        reason, before = _VARYING.sub("", str(error)), len(self._known)
        self._known.add(reason)
        return len(self._known) > before

    def clear(self) -> None:
        """Report every reason again."""
        self._known.clear()


class Outage:
    """Reports when the store becomes unavailable, each new reason, and when it is back.

    The first call that succeeds wakes all that wait for their next try.
    """

    on_over: Callable[[], None] | None = None
    """Called when a long outage is over."""

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self._clock = clock
        self.observer = observer
        self.is_on = False
        """Whether the last call failed. Callers check it before ``over``, which saves the call."""
        self._since = 0.0
        self._reasons = Reasons()
        self._ended = asyncio.Event()

    def failed(self, error: Exception) -> None:
        """Record that a call of the store failed."""
        if not self.is_on:
            self.is_on, self._since = True, self._clock.monotonic()
        if self._reasons.is_new(error):
            self.observer.emit("store.unavailable", error=str(error))

    def over(self) -> None:
        """Record that a call of the store succeeded."""
        if self.is_on:
            away = self._clock.monotonic() - self._since
            self.is_on = False
            self._reasons.clear()
            self.observer.emit("store.available", away=round(away, 3))
            if away >= LONG_OUTAGE:
                self._wake()

    async def pause(self, seconds: float, unless: asyncio.Event | None = None) -> None:
        """Wait so many seconds, or until a long outage is over or ``unless`` is set."""
        events = (self._ended,) if unless is None else (self._ended, unless)
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _wake(self) -> None:
        self._ended.set()
        self._ended = asyncio.Event()  # for the next outage
        if self.on_over is not None:
            self.on_over()
