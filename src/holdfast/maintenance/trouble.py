"""What keeps a service from its work: told once for every reason, and tried again ever later."""

from __future__ import annotations

from holdfast.errors import HoldfastError, StoreUnavailableError
from holdfast.observe import Observer, Outage
from holdfast.runtime.backoff import Pauses
from holdfast.runtime.randomness import Chance

LONGEST_PAUSE = 0.2
"""How long after an outage the next try comes at most, in seconds: jobs wait for it."""
LONGEST_REST = 10.0
"""How long after anything else, which most likely somebody has to put right."""


class Trouble:
    """That of one service, until it gets through."""

    def __init__(self, service: str, chance: Chance, observer: Observer, outage: Outage) -> None:
        self._service = service
        self._observer = observer
        self._outage = outage
        self._pauses = Pauses(chance, longest=LONGEST_PAUSE)
        self._rests = Pauses(chance, longest=LONGEST_REST)
        self._told: set[str] = set()

    def failed(self, error: HoldfastError) -> float:
        """Hear what went wrong; return how many seconds to wait."""
        if isinstance(error, StoreUnavailableError):
            self._outage.failed(error)
            return self._pauses.next()
        if str(error) not in self._told:
            self._told.add(str(error))
            self._observer.tell("maintenance.failed", service=self._service, error=str(error))
        return self._rests.next()

    def over(self) -> None:
        """Hear that it got through."""
        self._pauses.over()
        self._rests.over()
        self._told.clear()
