"""The Python side of a wire test: submits, claims and settles through the store alone."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.acceptance import accept
from holdfast.model.job import Failure, FailureCategory, Job, State
from holdfast.model.submission import Defaults, Parent, Submission
from holdfast.store import AddStatus, Change, Claim, Fence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.store.redis import RedisStore

WITHIN = 15.0
STEP = timedelta(seconds=0.2)


class Side:
    """A producer and worker on one store."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self._tokens = itertools.count(1)

    async def add(
        self, type_: str, payload: object = None, *, after: Sequence[Job] = (), **fields: Any
    ) -> Job:
        """Submit a job of queue q unless another is named."""
        job = self.new(type_, payload, after=after, **fields)
        (answer,) = await self.store.add([job])
        assert AddStatus.ACCEPTED == answer.status
        return job

    def new(
        self,
        type_: str,
        payload: object = None,
        *,
        after: Sequence[Job] = (),
        spawned_by: Job | None = None,
        **fields: Any,
    ) -> Job:
        """Return a job of queue q, unless another is named, that is not stored yet."""
        fields = {"queue": "q", "priority": "CRITICAL", **fields}
        job = accept(
            Submission(type=type_, payload=payload, depends_on=[p.id for p in after], **fields),
            job_id=str(uuid.uuid4()),
            now=self.store.now(),
            parents={parent.id: Parent(parent.priority, parent.depth) for parent in after},
            defaults=Defaults(removes_ended=True),
        )
        return replace(job, spawned_by=spawned_by.id) if spawned_by else job

    async def claim(
        self, limit: int = 1, queue: str = "q", types: tuple[str, ...] | None = None
    ) -> list[Job]:
        """Claim jobs that are ready now."""
        token = f"py-{uuid.uuid4().hex}:{next(self._tokens)}"
        want = Claim(queues=(queue,), limit=limit, worker="python", token=token, types=types)
        return await self.store.claim(want)

    async def take(self, count: int = 1, queue: str = "q") -> list[Job]:
        """Claim so many jobs, waiting on arrivals as a worker does."""
        taken: list[Job] = []
        seen = 0
        async with asyncio.timeout(WITHIN):
            while True:
                await self.store.promote(100)
                taken += await self.claim(count - len(taken), queue)
                if len(taken) == count:
                    return taken
                seen = await self.store.arrivals([queue], seen, STEP)

    async def complete(self, job: Job, result: bytes | None = b'{"py":1}') -> Job:
        return await self.swap(job, lifecycle.completed(job, result, now=self.store.now()))

    async def fail(
        self, job: Job, message: str = "broke", category: str = "TEMPORARY", **fields: Any
    ) -> Job:
        reason = Failure(category=FailureCategory(category), message=message, **fields)
        return await self.swap(job, lifecycle.after_failure(job, reason, now=self.store.now()))

    async def swap(self, before: Job, after: Job) -> Job:
        """Write a change, which must be accepted; return the job as stored, if it still is."""
        (answer,) = await self.store.swap([Change(before, after)])
        assert answer.written, answer
        (stored,) = await self.store.get([before.id])
        return stored or after

    async def get(self, job_id: str) -> Job:
        (job,) = await self.store.get([job_id])
        assert job is not None, job_id
        return job

    async def extend(self, job: Job) -> bool:
        assert job.lease is not None
        (renewal,) = await self.store.extend([Fence(job.id, job.lease.token)])
        return renewal.held

    async def becomes(self, job_id: str, state: State) -> Job:
        """Wait until a job is in a state, reading as any client would."""
        return await self.until(job_id, lambda job: job.state is state)

    async def until(self, job_id: str, matches: Callable[[Job], bool]) -> Job:
        """Wait until a job matches, reading it again after new events."""
        page = await self.store.events(None, 0, timedelta(0))
        cursor = page.cursor
        async with asyncio.timeout(WITHIN):
            while True:
                (job,) = await self.store.get([job_id])
                if job is not None and matches(job):
                    return job
                cursor = (await self.store.events(cursor, 100, STEP)).cursor
