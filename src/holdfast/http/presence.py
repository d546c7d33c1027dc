"""How many workers over HTTP a namespace has: each name is a lock in the store while it is present.

A name that this process has seen costs nothing. The others are read from the store at most once a
second, so that servers together may exceed the limit by the new names of a second.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.errors import QuotaError
from holdfast.model.workers import remote_prefix
from holdfast.runtime.clock import Clock
from holdfast.store import Store

PRESENT_FOR = timedelta(seconds=45)
"""How long a worker counts as present after its last claim."""
READ_INTERVAL = 1.0
"""Seconds between two reads of the workers that other servers have seen."""


class _Names(msgspec.Struct):
    here: dict[str, float]
    """Until when each worker that called this server is present, by the monotonic clock."""
    stored: frozenset[str] = frozenset()
    read_at: float = float("-inf")


class Presence:
    """Admits workers over HTTP, or raises QuotaError."""

    def __init__(self, store: Store, maximum: int, clock: Clock) -> None:
        self._store = store
        self._maximum = maximum
        self._clock = clock
        self._namespaces: dict[str, _Names] = {}

    async def admit(self, namespace: str, worker: str, stays: timedelta) -> None:
        """Count a worker as present; those that are present are always admitted."""
        names = self._namespaces.setdefault(namespace, _Names({}))
        if names.here.get(worker, 0.0) <= self._clock.monotonic():
            await self._read(namespace, names)
            present = names.stored | names.here.keys()
            if worker not in present and len(present) >= self._maximum:
                raise QuotaError(
                    "workers of this namespace (service.workers_per_namespace)",
                    current=len(present),
                    maximum=self._maximum,
                    retry_after=PRESENT_FOR,
                )
        names.here[worker] = self._clock.monotonic() + stays.total_seconds()

    async def _read(self, namespace: str, names: _Names) -> None:
        if self._clock.monotonic() - names.read_at >= READ_INTERVAL:
            prefix = remote_prefix(namespace)
            locks = await self._store.locks(prefix)
            names.stored = frozenset(lock.name.removeprefix(prefix) for lock in locks)
            names.read_at = self._clock.monotonic()
        now = self._clock.monotonic()
        names.here = {name: until for name, until in names.here.items() if until > now}
