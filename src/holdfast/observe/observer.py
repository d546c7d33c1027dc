"""What the running parts tell whoever listens: an event name and fields, never a payload."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Hears what a worker does. Called on the worker's loop: be quick, do not raise."""

    def tell(self, event: str, **fields: object) -> None:
        """Hear of an event such as ``job.completed`` with job_id, type, attempt and more."""
        ...


class Silent:
    """Hears everything and says nothing."""

    def tell(self, event: str, **fields: object) -> None:
        pass


class Several:
    """Passes everything on to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def tell(self, event: str, **fields: object) -> None:
        for observer in self._observers:
            observer.tell(event, **fields)
