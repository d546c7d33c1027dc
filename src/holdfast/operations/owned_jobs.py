"""The unfinished jobs of a key, which its ``--live-jobs`` bounds."""

from __future__ import annotations

from holdfast.model.job import LIVE
from holdfast.model.reserved import OWNER
from holdfast.store import Search, Store


async def live_jobs(store: Store, key_id: str) -> int:
    """Return how many jobs of a key have not ended."""
    search = Search(tags={OWNER: key_id}, states=tuple(LIVE), limit=1)
    return (await store.find(search)).total
