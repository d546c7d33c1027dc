"""Finding the queues of BullMQ clients under the prefix."""

from __future__ import annotations

from holdfast.store.redis.encode import pack
from holdfast.store.redis.session import RedisSession

SCANNED = 1000
"""Keys that one step looks at."""
PROMOTES_PER_STEP = 5
"""Calls of ``promote`` for one step."""
_GLOB_SYMBOLS = "*?[]\\^"


class QueueFinder:
    """Scans the keys of a prefix, step by step, for queues this store does not know yet."""

    def __init__(self, session: RedisSession) -> None:
        self._session = session
        self._cursor = 0
        self._promotes = 0
        self._start = f"{session.settings.prefix}:"
        escaped = "".join(f"\\{c}" if c in _GLOB_SYMBOLS else c for c in self._start)
        self._pattern = f"{escaped}*:meta"

    async def find_all(self) -> list[str]:
        """Register every queue; return why some are not supported: an unknown version."""
        unsupported = await self._step()
        while self._cursor:
            unsupported += await self._step()
        return unsupported

    async def promoted(self) -> None:
        """Take a step now and then; a queue that is not supported becomes a warning."""
        self._promotes += 1
        if self._promotes % PROMOTES_PER_STEP == 0:
            for reason in await self._step():
                self._session.warn(reason)

    async def _step(self) -> list[str]:
        words = ("SCAN", self._cursor, "MATCH", self._pattern, "COUNT", SCANNED)
        cursor, keys = await self._session.client.command(*words)
        self._cursor = int(cursor)
        found = (key.decode("utf-8", "replace")[len(self._start) : -len(":meta")] for key in keys)
        names = [name for name in found if name and ":" not in name]
        if not names:
            return []
        reasons = await self._session.call("register", pack(names))
        return [reason.decode("utf-8", "replace") for reason in reasons]
