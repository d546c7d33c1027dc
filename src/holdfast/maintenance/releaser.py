"""Finds dependents whose dependencies ended while nobody was there to tell them."""

from __future__ import annotations

from holdfast.operations.dependents import release_dependents
from holdfast.store import Store

EVERY = 2.0


class Releaser:
    """The sweep behind the releases that happen at once."""

    name = "releaser"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def once(self) -> float:
        await release_dependents(self._store)
        return EVERY
