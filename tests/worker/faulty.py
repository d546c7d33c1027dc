"""A store with faults: it refuses calls, or makes them and loses the answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Self

from holdfast.errors import StoreUnavailableError
from holdfast.store import Store

LOCAL = ("close", "capabilities", "not_notified_because")


class FaultyStore:
    """Forwards every verb to a store, unless a fault is set."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.away: set[str] = set()
        """Verbs that fail; ``*`` for all."""
        self.forgetful: set[str] = set()
        """Verbs that are executed but whose answer is lost."""
        self.refused = 0

    def now(self) -> datetime:
        return self.inner.now()

    async def start(self) -> Self:
        await self.inner.start()
        return self

    def __getattr__(self, verb: str) -> Callable[..., object]:
        if verb.startswith("_") or verb in LOCAL:
            method: Callable[..., object] = getattr(self.inner, verb)
            return method

        async def call(*args: object, **kwargs: object) -> object:
            if self.away & {verb, "*"}:
                self.refused += 1
                raise StoreUnavailableError(f"{verb}: the store is away")
            answer = await getattr(self.inner, verb)(*args, **kwargs)
            if verb in self.forgetful and answer:
                self.refused += 1
                self.forgetful.discard(verb)
                raise StoreUnavailableError(f"{verb}: the connection broke")
            return answer

        if verb == "add_now" or not hasattr(self.inner, verb):  # every submission may fail
            raise AttributeError(verb)
        return call
