"""Which workers are there: each holds its own name in the store for as long as it lives."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.model.workers import PREFIX, WorkerInfo
from holdfast.store import Store

LEADERSHIP = "maintenance"
"""What one of them holds, who looks after all jobs: makes them ready, takes them back."""
WORKER_TTL = timedelta(seconds=15)


async def announce(store: Store, info: WorkerInfo, ttl: timedelta = WORKER_TTL) -> None:
    """Say that a worker is there; a ttl of zero says good-bye."""
    await store.hold(PREFIX + info.id, info.id, ttl, msgspec.json.encode(info))


async def workers(store: Store) -> list[WorkerInfo]:
    """Return the workers that are there now."""
    return [
        msgspec.structs.replace(
            msgspec.json.decode(hold.data, type=WorkerInfo), seen_until=hold.until
        )
        for hold in await store.holds(PREFIX)
    ]
