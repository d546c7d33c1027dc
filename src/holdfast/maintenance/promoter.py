"""Makes delayed and retrying jobs ready when they are due."""

from __future__ import annotations

from holdfast.operations.dependents import release_dependents
from holdfast.store import Store

PAGE = 1000
LONGEST_WAIT = 1.0


class Promoter:
    """Promotes due jobs."""

    name = "promoter"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def once(self) -> float:
        promoted = await self._store.promote(PAGE)
        if promoted.has_dependents:
            await release_dependents(self._store)
        if promoted.count == PAGE:
            return 0.0
        if promoted.next_due is None:
            return LONGEST_WAIT
        until = (promoted.next_due - self._store.now()).total_seconds()
        return min(max(until, 0.0), LONGEST_WAIT)
