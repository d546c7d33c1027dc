"""Deletes ended jobs past their retention, old books of failures and old requests to drain."""

from __future__ import annotations

from holdfast.model.policy import Retention
from holdfast.operations.draining import prune_drained
from holdfast.operations.failure_groups import prune_books
from holdfast.store import Store

PAGE = 500
EVERY = 30.0
PAUSE = 0.05
"""Seconds between two full batches, in which others may write."""


class Pruner:
    """Prunes by retention."""

    name = "pruner"

    def __init__(self, store: Store, retention: Retention) -> None:
        self._store = store
        self._retention = retention

    async def once(self) -> float:
        pruned = await self._store.prune(self._retention, PAGE)
        if pruned == PAGE:
            return PAUSE
        await prune_books(self._store)
        await prune_drained(self._store)
        return EVERY
