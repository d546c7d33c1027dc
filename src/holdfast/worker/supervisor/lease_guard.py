"""Renews the leases of worker processes whose own heartbeat is late.

A call that holds the interpreter lock stops every thread of its process, the heartbeat too.
The supervisor renews instead, but no longer than a job may run.
"""

from __future__ import annotations

import asyncio

from holdfast.model.job import State
from holdfast.observe import Observer
from holdfast.runtime.clock import Clock
from holdfast.store import Fence, Search, Store
from holdfast.worker.heartbeat import DEADLINE_MARGIN
from holdfast.worker.supervisor.protocol import (
    ClaimedMessage,
    Holding,
    ReleasedMessage,
    Renewed,
    Report,
)

LATE = 0.5
"""The share of a lease after which the process's own renewal (at a third) is late."""

LONGEST_WAIT = 1.0
PAGE = 1000


class _Watched:
    """A job that a worker process holds."""

    def __init__(self, holding: Holding, worker: str, now: float) -> None:
        self.fence = Fence(holding.job_id, holding.token)
        self.lease = holding.lease
        self.worker = worker
        self.renewed = now
        self.end = now + holding.timeout + DEADLINE_MARGIN

    def is_late(self, now: float) -> bool:
        return now - self.renewed >= LATE * self.lease and now < self.end


class LeaseGuard:
    """Tracks which process holds which job, and renews what is late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[str, _Watched] = {}

    @property
    def held(self) -> int:
        """How many jobs the processes hold."""
        return len(self._watched)

    def update(self, worker: str, report: Report) -> None:
        """Record a worker process's report on the jobs it holds."""
        now = self._clock.monotonic()
        match report:
            case ClaimedMessage(jobs):
                for holding in jobs:
                    self._watched[holding.job_id] = _Watched(holding, worker, now)
            case Renewed(ids):
                for job_id in ids:
                    if job_id in self._watched:
                        self._watched[job_id].renewed = now
            case ReleasedMessage(ids):
                for job_id in ids:
                    self._watched.pop(job_id, None)
            case _:
                pass

    def forget(self, worker: str) -> None:
        """Stop renewing for a process that ended."""
        for job_id in [i for i, watched in self._watched.items() if watched.worker == worker]:
            del self._watched[job_id]

    async def once(self, store: Store) -> float:
        """Renew what is late; return seconds until the next look."""
        now = self._clock.monotonic()
        late = [watched for watched in self._watched.values() if watched.is_late(now)]
        if late:
            renewals = await store.extend([watched.fence for watched in late])
            for watched, renewal in zip(late, renewals, strict=True):
                if not renewal.held:
                    self._watched.pop(watched.fence.job_id, None)
                elif renewal.renewed:
                    watched.renewed = now
        return min([LONGEST_WAIT, *(w.lease / 6 for w in self._watched.values())])

    async def run(self, store: Store, observer: Observer) -> None:
        """Renew until cancelled."""
        while True:
            try:
                delay = await self.once(store)
            except Exception as error:  # noqa: BLE001  # leases depend on it: report and go on
                observer.emit("heartbeat.missed", error=str(error), leases=len(self._watched))
                delay = LONGEST_WAIT
            await asyncio.sleep(delay)


async def held_by(store: Store, worker: str) -> list[Fence]:
    """Return the leases a worker holds according to the store, unreported claims included."""
    fences: list[Fence] = []
    search = Search(states=(State.RUNNING,), limit=PAGE)
    while True:
        page = await store.find(search)
        fences.extend(
            Fence(job.id, job.lease.token)
            for job in page.jobs
            if job.lease is not None and job.lease.worker == worker
        )
        if page.next_cursor is None:
            return fences
        search = Search(states=(State.RUNNING,), limit=PAGE, cursor=page.next_cursor)
