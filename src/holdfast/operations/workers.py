"""Which workers are alive: each holds a lock with its own name in the store."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.model.workers import ALL, LEADERSHIP, PREFIX, WorkerInfo
from holdfast.operations.held import held
from holdfast.runtime.pace import Pace
from holdfast.store import NamedLock, Store
from holdfast.store.damage import readable

TERM = timedelta(seconds=1)
"""How long a leader leads without renewing; meanwhile no other process recovers jobs."""
WORKER_TTL = timedelta(seconds=15)
"""How long a worker counts as alive after its newest announcement."""
LONGEST_TTL = timedelta(seconds=75)
"""The same for a worker over HTTP that waits for work as long as it may."""


async def announce(store: Store, info: WorkerInfo, ttl: timedelta = WORKER_TTL) -> None:
    """Announce that a worker is alive; a ttl of zero removes it."""
    await store.lock(PREFIX + info.id, info.id, ttl, msgspec.json.encode(info))


async def is_led(store: Store) -> bool:
    """Whether a worker leads maintenance."""
    return bool(await held(store, LEADERSHIP, TERM))


async def workers(store: Store) -> list[WorkerInfo]:
    """Return the workers that are alive; other tasks run while many are read."""
    pace, found = Pace(), list[WorkerInfo]()
    for lock in await held(store, ALL, LONGEST_TTL):
        await pace.turn()
        found += readable([lock], _worker)
    return found


def _worker(lock: NamedLock) -> WorkerInfo:
    info = msgspec.json.decode(lock.data, type=WorkerInfo)
    return msgspec.structs.replace(info, seen_until=lock.until)
