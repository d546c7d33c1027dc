"""Recovers jobs whose lease expired, and ends those whose lifetime is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from holdfast.maintenance.clock import StoreClock
from holdfast.maintenance.suspicion import died_soon, may_have_killed
from holdfast.model import lifecycle
from holdfast.model.deadlines import outlived_deadline, timeout_failure
from holdfast.model.job import DIED_TOGETHER, EXPIRED, Job, State
from holdfast.observe import Observer
from holdfast.operations.dependents import release_dependents
from holdfast.operations.quarantine import set_aside, swap_each
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
        clock: StoreClock | None = None,
    ) -> None:
        self._store = store
        self._randomness = randomness
        self._observer = observer
        self._steady = steady
        self._clock = clock
        self._aside: set[str] = set()
        """Jobs that could not be recovered; they must not fill the page of the others."""

    async def once(self) -> float:
        if not self._steady():
            return EVERY
        jobs = await self._spare(await self._store.overdue(PAGE + len(self._aside)))
        # A job kills one worker, not several within one look; a host or an outage does.
        together = len({job.lease.worker for job in jobs if job.lease}) > 1
        changes = [change for job in jobs if (change := await self._decided(job, together))]
        written = await self._write(changes)
        return 0.0 if len(jobs) >= PAGE and written else EVERY

    async def _spare(self, jobs: list[Job]) -> list[Job]:
        """Renew leases that ended only because the clock was set forward; return the others.

        A live holder has not been able to renew such a lease. A dead one does not renew it again.
        """
        change = self._clock.look() if self._clock else None
        skipped = [job for job in jobs if change and change.skipped_end_of(job)]
        fences = [Fence(job.id, job.lease.token) for job in skipped if job.lease]
        renewals = await self._store.extend(fences) if fences else []
        spared = {f.job_id for f, renewal in zip(fences, renewals, strict=True) if renewal.held}
        return [job for job in jobs if job.id not in spared]

    async def recover(
        self, fences: Sequence[Fence], why: str, died_at: datetime | None = None
    ) -> int:
        """Recover at once the jobs of a worker that is known to be dead.

        ``died_at`` is when it died, if a job may have killed it.
        """
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
        return await self._write([_lost(job, now, why, died_at) for job in dead])

    async def _decided(self, job: Job, together: bool) -> Change | None:
        """Decide what becomes of a job; None for one that is set aside."""
        if job.id in self._aside:
            return None
        try:
            return self._decide(job, together)
        except Exception as error:  # noqa: BLE001  # the others are recovered
            await self._set_aside(job, error)
            return None

    async def _set_aside(self, job: Job, error: Exception | str) -> None:
        self._aside.add(job.id)
        await set_aside(self._store, job.id, error)

    def _decide(self, job: Job, together: bool) -> Change:
        now = self._store.now()
        if now >= job.expires_at:
            return Change(job, lifecycle.lifetime_over(job, now=now))
        until = job.lease.until if job.lease else None
        jitter = self._randomness.jitter()
        if outlived_deadline(job):
            timeout = timeout_failure(job.timeout.total_seconds())
            lost = lifecycle.after_failure(job, timeout, now=now, jitter=jitter)
        else:
            why = DIED_TOGETHER if together else EXPIRED
            suspect = not together and may_have_killed(job, now)
            lost = lifecycle.lease_lost(job, now=now, jitter=jitter, why=why, suspect=suspect)
        return Change(job, lost, until)

    async def _write(self, changes: Sequence[Change]) -> int:
        if not changes:
            return 0
        answers = await swap_each(self._store, changes)
        for change, answer in zip(changes, answers, strict=True):
            if answer is None:
                self._aside.add(change.before.id)
            elif answer.written:
                self._report(change)
        found = [answer for answer in answers if answer is not None]
        if any(answer.has_dependents for answer in found):
            await release_dependents(self._store)
        return sum(answer.written for answer in found)

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


def _lost(job: Job, now: datetime, why: str, died_at: datetime | None) -> Change:
    suspect = died_at is not None and died_soon(job, died_at)
    return Change(job, lifecycle.lease_lost(job, now=now, jitter=-1.0, why=why, suspect=suspect))
