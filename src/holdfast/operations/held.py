"""Named locks that are held now."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.clock_changes import TOLERANCE
from holdfast.store import NamedLock, Store


async def held(store: Store, prefix: str, ttl: timedelta) -> list[NamedLock]:
    """Return the locks with a prefix that were taken for ``ttl`` and have not expired.

    One that ends later than that was taken before the clock was set back: its holder has not
    renewed it since.
    """
    found = await store.locks(prefix)
    latest = store.now() + ttl + TOLERANCE
    return [lock for lock in found if lock.until <= latest]
