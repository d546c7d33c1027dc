"""Recovers jobs whose lease expired, and ends those whose lifetime is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.model import lifecycle
from holdfast.model.job import Job, State
from holdfast.observe import Observer
from holdfast.operations.dependents import release_dependents
from holdfast.runtime.randomness import Randomness
from holdfast.store import Change, Fence, Store

PAGE = 500
EVERY = 0.25
"""Seconds between two looks: a dead worker's jobs wait for their lease and hardly longer."""


class Reaper:
    """Reads what is overdue, decides with the lifecycle, swaps under the fence.

    It does nothing while the store is not ``steady``.
    """

    name = "reaper"

    def __init__(
        self,
        store: Store,
        randomness: Randomness,
        observer: Observer,
        steady: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._randomness = randomness
        self._observer = observer
        self._steady = steady

    async def once(self) -> float:
        if not self._steady():
            return EVERY
        jobs = await self._store.overdue(PAGE)
        await self._write([self._decided(job) for job in jobs])
        return 0.0 if len(jobs) == PAGE else EVERY

    async def recover(self, fences: Sequence[Fence], why: str) -> int:
        """Recover at once the jobs of a worker that is known to be dead."""
        tokens = {fence.job_id: fence.token for fence in fences}
        jobs = await self._store.get(list(tokens))
        dead = [
            job
            for job in jobs
            if job is not None
            and job.state is State.RUNNING
            and job.lease is not None
            and job.lease.token == tokens[job.id]
        ]
        now = self._store.now()
        return await self._write(
            [Change(job, lifecycle.lease_lost(job, now=now, jitter=-1.0, why=why)) for job in dead]
        )

    def _decided(self, job: Job) -> Change:
        now = self._store.now()
        if now >= job.expires_at:
            return Change(job, lifecycle.lifetime_over(job, now=now))
        until = job.lease.until if job.lease else None
        lost = lifecycle.lease_lost(job, now=now, jitter=self._randomness.jitter())
        return Change(job, lost, until)

    async def _write(self, changes: Sequence[Change]) -> int:
        if not changes:
            return 0
        answers = await self._store.swap(changes)
        for change, answer in zip(changes, answers, strict=True):
            if answer.written:
                self._report(change)
        if any(answer.has_dependents for answer in answers):
            await release_dependents(self._store)
        return sum(answer.written for answer in answers)

    def _report(self, change: Change) -> None:
        job = change.after
        self._observer.emit(
            "job.reaped",
            job_id=job.id,
            type=job.type,
            attempt=job.attempt,
            state=job.state,
            worker=job.lease.worker if job.lease else None,
            error=job.failure.message if job.failure else None,
        )
