"""A store that counts its calls, and that can be away."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

from holdfast.errors import StoreUnavailableError
from holdfast.store.proxy import StoreProxy


class CountedStore(StoreProxy):
    """Counts the calls of a store, and can be away."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()
        self.is_away = False
        for name, _ in inspect.getmembers(StoreProxy, inspect.iscoroutinefunction):
            if name not in ("start", "close"):
                setattr(self, name, self._counted(name, getattr(inner, name)))

    def _counted(self, name: str, verb: Any) -> Any:
        async def call(*args: Any, **more: Any) -> Any:
            self.calls[name] += 1
            if self.is_away:
                raise StoreUnavailableError("the store is away")
            return await verb(*args, **more)

        return call
