"""Finds dependents that were not released when their dependencies ended."""

from __future__ import annotations

from holdfast.operations.dependents import release_dependents
from holdfast.store import Store

EVERY = 2.0


class Releaser:
    """Repeats in the background what mostly happens at once."""

    name = "releaser"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def once(self) -> float:
        await release_dependents(self._store)
        return EVERY
