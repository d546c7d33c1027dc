"""Logs what was set aside, whichever process or script set it aside."""

from __future__ import annotations

from holdfast.observe import Observer
from holdfast.operations.quarantine import quarantined
from holdfast.store import Store

EVERY = 2.0


class QuarantineLog:
    """Emits ``item.quarantined`` once for each item and error."""

    name = "quarantine"

    def __init__(self, store: Store, observer: Observer) -> None:
        self._store = store
        self._observer = observer
        self._logged: set[tuple[str, str]] = set()

    async def once(self) -> float:
        found = {(report.name, report.error) for report in await quarantined(self._store)}
        for name, error in sorted(found - self._logged):
            self._observer.emit("item.quarantined", item=name, error=error)
        self._logged = found
        return EVERY
