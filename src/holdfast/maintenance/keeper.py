"""Keeps what operators decided: resumes queues when their pauses end, restores limits."""

from __future__ import annotations

from holdfast.model.reserved import LIMIT_OVERRIDES, QUEUE_PAUSES
from holdfast.observe import Observer
from holdfast.operations.limits import restore_overrides
from holdfast.operations.pauses import end_pauses
from holdfast.store import Store
from holdfast.store.tenants import TenantStore

EVERY = 1.0
RESTORE_EVERY = 5
"""Looks between two looks at limits."""


class Keeper:
    """Ends pauses of queues, and sets limits again that a worker of older code has replaced."""

    name = "keeper"

    def __init__(self, store: Store, observer: Observer) -> None:
        self._store = store
        self._observer = observer
        self._looks = 0

    async def once(self) -> float:
        kinds = [kind.partition("@") for kind in await self._store.kinds()]
        for namespace in [ns for kind, _, ns in kinds if kind == QUEUE_PAUSES]:
            for queue in await end_pauses(self._within(namespace)):
                name = f"{namespace}/{queue}" if namespace else queue
                self._observer.emit("queue.resumed", queue=name, reason="its pause has ended")
        if self._looks % RESTORE_EVERY == 0 and (LIMIT_OVERRIDES, "", "") in kinds:
            await restore_overrides(self._store)
        self._looks += 1
        return EVERY

    def _within(self, namespace: str) -> Store:
        return TenantStore(self._store, namespace) if namespace else self._store
