"""Shortcuts that put jobs into every kind of situation, on any store.

Ids come from labels and tokens from a counter: doing the same on two stores gives the same
jobs. Every shortcut asserts that the store did what was requested.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.acceptance import NO_DEFAULTS, accept
from holdfast.model.dependencies import verdict
from holdfast.model.job import DedupeKey, Failure, FailureCategory, Job, State
from holdfast.model.submission import Defaults, Parent, Spawner, Submission
from holdfast.store import AddStatus, Change, Claim, Fence, JobNote

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.runtime.clock import ManualClock
    from holdfast.store import Added, Store, Swapped

TICK = timedelta(milliseconds=1)
"""The smallest step of time that every engine can distinguish."""
LEASE = timedelta(seconds=30)
MANY = 1000


@functools.cache
def job_id(label: str) -> str:
    """The id of the job with this label; ids do not sort like labels."""
    return str(uuid.UUID(bytes=hashlib.blake2b(label.encode(), digest_size=16).digest(), version=4))


def make(
    label: str,
    *,
    now: datetime,
    after: Sequence[Job] = (),
    spawner: Spawner | None = None,
    defaults: Defaults = NO_DEFAULTS,
    **fields: Any,
) -> Job:
    """Accept a submission for the label; ``after`` are the jobs it depends on.

    A queue such as ``acme/q`` is one of a namespace; the service adds it to accepted jobs.
    """
    namespace, slash, queue = fields.pop("queue", "").rpartition("/")
    fields = {
        "type": label.replace(" ", "."),
        "payload": {"label": label},
        "lease": LEASE,
        **({"queue": queue} if queue else {}),
        **fields,
    }
    job = accept(
        Submission(depends_on=[parent.id for parent in after], **fields),
        job_id=job_id(label),
        now=now,
        defaults=defaults,
        parents={parent.id: Parent(parent.priority, parent.depth) for parent in after},
        spawner=spawner,
    )
    return replace(job, queue=f"{namespace}{slash}{job.queue}")


def failure(
    category: FailureCategory = FailureCategory.TEMPORARY,
    message: str = "it broke",
    **fields: Any,
) -> Failure:
    """Make a failure as a worker would report it."""
    return Failure(category=category, message=message, **fields)


def fence(job: Job) -> Fence:
    """The proof of holding a job that was claimed."""
    assert job.lease is not None
    return Fence(job.id, job.lease.token)


class Hand:
    """Works on one store: submits, claims, settles."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self._tokens = itertools.count(1)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    # --- submitting ----------------------------------------------------------------------

    def job(self, label: str, **fields: Any) -> Job:
        """Make a job without writing it; see ``make``."""
        return make(label, now=self.now, **fields)

    async def add(self, label: str, **fields: Any) -> Job:
        """Submit a job that is accepted."""
        return (await self.add_all(self.job(label, **fields)))[0]

    async def add_all(self, *jobs: Job) -> list[Job]:
        """Submit jobs in one call; all are accepted."""
        answers = await self.store.add(jobs)
        assert {AddStatus.ACCEPTED} == {answer.status for answer in answers}
        return await self.get_all(*jobs)

    async def try_add(self, *jobs: Job, atomic: bool = True) -> list[Added]:
        return await self.store.add(jobs, atomic=atomic)

    def spawned(self, label: str, by: Job, *, key: str = "", **fields: Any) -> Job:
        """Make a job that a running one spawns; not written.

        With ``key``, it has a key without end, as jobs that earlier versions spawned.
        """
        job = self.job(label, spawner=Spawner(by.id, label), **fields)
        return replace(job, dedupe=DedupeKey(f"spawn:{by.id}", key, "", None)) if key else job

    async def spawn(self, label: str, by: Job, *, key: str = "", **fields: Any) -> Job:
        """Submit a job under the fence of the running job that spawns it."""
        new = self.spawned(label, by, key=key, **fields)
        (answer,) = await self.store.add([new], fence=fence(by))
        assert AddStatus.ACCEPTED == answer.status
        return await self.get(new)

    # --- working -------------------------------------------------------------------------

    async def claim(
        self,
        limit: int = 1,
        *,
        queues: Sequence[str] = ("default",),
        types: Sequence[str] | None = None,
        worker: str = "w1",
        token: str = "",
    ) -> list[Job]:
        """Claim like a worker, under a new token unless one is given."""
        return await self.store.claim(
            Claim(
                queues=tuple(queues),
                limit=limit,
                worker=worker,
                token=token or f"token-{next(self._tokens)}",
                types=None if types is None else tuple(types),
            )
        )

    async def take(self, job: Job, **how: Any) -> Job:
        """Claim this job, which is ready."""
        (taken,) = await self.claim(queues=(job.queue,), types=(job.type,), **how)
        assert job.id == taken.id
        return taken

    async def run(self, label: str, **fields: Any) -> Job:
        """Submit a job and claim it."""
        return await self.take(await self.add(label, **fields))

    async def drain(self, *queues: str) -> list[str]:
        """Claim everything that is ready, one by one; return types in order of service."""
        found: list[str] = []
        while jobs := await self.claim(queues=queues or ("default",)):
            found += [job.type for job in jobs]
        return found

    async def try_swap(self, before: Job, after: Job, until: datetime | None = None) -> Swapped:
        (answer,) = await self.store.swap([Change(before, after, until)])
        return answer

    async def swap(self, before: Job, after: Job, until: datetime | None = None) -> Job:
        """Write a decided change, which is accepted."""
        answer = await self.try_swap(before, after, until)
        assert answer.written
        return await self.get(after)

    async def complete(self, job: Job, result: bytes | None = b"null") -> Job:
        return await self.swap(job, lifecycle.completed(job, result, now=self.now))

    async def fail(
        self, job: Job, category: FailureCategory = FailureCategory.TEMPORARY, **fields: Any
    ) -> Job:
        decided = lifecycle.after_failure(job, failure(category, **fields), now=self.now)
        return await self.swap(job, decided)

    async def lapse(self, job: Job) -> Job:
        """Take a running job from its holder after the lease ended, as the reaper does."""
        assert job.lease is not None
        return await self.swap(job, lifecycle.lease_lost(job, now=self.now), job.lease.until)

    async def give_back(self, job: Job) -> Job:
        return await self.swap(job, lifecycle.given_back(job, now=self.now))

    async def cancel(self, job: Job, *, reason: str = "unwanted", force: bool = False) -> Job:
        requested = lifecycle.cancel_requested(job, reason=reason, force=force, now=self.now)
        return await self.swap(job, requested)

    async def expire(self, job: Job) -> Job:
        return await self.swap(job, lifecycle.lifetime_over(job, now=self.now))

    async def reopen(self, job: Job, **how: Any) -> Job:
        return await self.swap(job, lifecycle.reopened(job, now=self.now, **how))

    async def release(self, job: Job) -> Job:
        return await self.swap(job, lifecycle.released(job, now=self.now))

    async def note(self, job: Job, **what: Any) -> None:
        """Write a note under the lease of a running job."""
        assert [True] == await self.store.note([JobNote(fence=fence(job), **what)])

    # --- maintenance ---------------------------------------------------------------------

    async def settle_dependents(self) -> list[str]:
        """Decide on every waiting job until nothing is due; return the types that moved."""
        moved: list[str] = []
        while found := await self.store.dependents(MANY):
            for each in found:
                decision = verdict(each.job.dependency_kind, each.parents)
                decided = lifecycle.dependency_ended(each.job, decision, now=self.now)
                await self.swap(each.job, decided)
                moved.append(each.job.type)
        return moved

    async def finish(self, job: Job, state: State) -> Job:
        """Bring a ready job to one of the four ends."""
        if state is State.CANCELLED:
            return await self.cancel(job)
        running = await self.take(job)
        match state:
            case State.COMPLETED:
                return await self.complete(running)
            case State.FAILED:
                return await self.fail(running, FailureCategory.PERMANENT)
            case _:
                return await self.expire(running)

    # --- reading -------------------------------------------------------------------------

    async def get(self, job: Job) -> Job:
        return (await self.get_all(job))[0]

    async def get_all(self, *jobs: Job) -> list[Job]:
        found = await self.store.get([job.id for job in jobs])
        return [job for job in found if job is not None]
