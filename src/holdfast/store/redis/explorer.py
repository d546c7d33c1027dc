"""Getting to know queues that BullMQ clients made: a walk over the keys, in small steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.redis.calls import pack

if TYPE_CHECKING:
    from holdfast.store.redis.store import RedisStore

STEP = 1000
EVERY = 5
"""Calls of ``promote`` for one step of the walk."""
_MAGIC = "*?[]\\^"


class Explorer:
    """Walks over the keys of a prefix for queues nobody has told this store of."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._cursor = 0
        self._calls = 0
        self._start = f"{store.settings.prefix}:"
        escaped = "".join(f"\\{c}" if c in _MAGIC else c for c in self._start)
        self._pattern = f"{escaped}*:meta"

    async def all(self) -> list[str]:
        """Meet every queue; return why some cannot be shared: a version we do not know."""
        strange = await self._meet()
        while self._cursor:
            strange += await self._meet()
        return strange

    async def step(self) -> None:
        """Look at some keys now and then; a queue that cannot be shared becomes a warning."""
        self._calls += 1
        if self._calls % EVERY == 0:
            for why in await self._meet():
                self._store.warn(why)

    async def _meet(self) -> list[str]:
        words = ("SCAN", self._cursor, "MATCH", self._pattern, "COUNT", STEP)
        cursor, keys = await self._store.client.command(*words)
        self._cursor = int(cursor)
        found = (key.decode("utf-8", "replace")[len(self._start) : -len(":meta")] for key in keys)
        names = [name for name in found if name and ":" not in name]
        if not names:
            return []
        strangers = await self._store.call("meet", pack(names))
        return [why.decode("utf-8", "replace") for why in strangers]
