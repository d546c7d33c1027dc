"""Workers over HTTP: claim, renew, report and settle with a lease token."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.errors import NotFoundError, StaleLeaseError
from holdfast.model import lifecycle
from holdfast.model.job import CancelRequest, Encoding, Job, State, read_extra
from holdfast.model.status import priority_name, public_tags
from holdfast.model.workers import WorkerInfo
from holdfast.operations.changes import decide_and_swap
from holdfast.operations.dependents import release_dependents
from holdfast.operations.quarantine import without_damaged
from holdfast.operations.workers import announce
from holdfast.runtime.randomness import Randomness
from holdfast.store import Claim, Fence, JobNote, Renewal, Store

PRESENT_FOR = timedelta(seconds=45)
"""How long a worker counts as present after its last claim."""


class ClaimedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed job; the worker holds it until its lease ends."""

    job_id: str
    type: str
    queue: str
    payload: msgspec.Raw
    payload_encoding: str
    """json, or base64 when the payload is a string that encodes bytes."""
    attempt: int
    max_attempts: int
    attempt_id: str
    lease_token: str
    lease_until: datetime | None
    lease_seconds: float
    """How long a renewal lasts; renew after a third of it."""
    timeout_seconds: float
    """How long this attempt may take."""
    checkpoint: str | None
    """The checkpoint of an earlier attempt, as base64."""
    priority: str
    created_at: datetime
    tags: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    correlation_id: str | None = None

    @classmethod
    def of(cls, job: Job) -> ClaimedJob:
        """Return the body for a job that was just claimed."""
        assert job.lease is not None
        plain = job.encoding is Encoding.JSON
        payload = job.payload if plain else msgspec.json.encode(job.payload)
        return cls(
            job_id=job.id,
            type=job.type,
            queue=job.queue,
            payload=msgspec.Raw(payload),
            payload_encoding="json" if plain else "base64",
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            attempt_id=job.attempt_id,
            lease_token=job.lease.token,
            lease_until=job.lease.until,
            lease_seconds=job.lease_ttl.total_seconds(),
            timeout_seconds=job.timeout.total_seconds(),
            checkpoint=None
            if job.checkpoint is None
            else base64.b64encode(job.checkpoint).decode(),
            priority=priority_name(job.priority),
            created_at=job.created_at,
            tags=public_tags(job.tags),
            headers=read_extra(job.extra).headers,
            correlation_id=job.correlation_id or None,
        )


class ClaimResult(msgspec.Struct, frozen=True):
    """The claimed jobs."""

    jobs: tuple[ClaimedJob, ...]


class LeaseState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a lease is held, and whether a cancellation is requested."""

    job_id: str
    held: bool
    lease_until: datetime | None = None
    cancel_requested: bool = False
    cancel_force: bool = False
    cancel_reason: str = ""

    @classmethod
    def of(cls, job_id: str, renewal: Renewal) -> LeaseState:
        """Return the body for one renewal."""
        return _state(job_id, renewal.cancel, held=renewal.held, until=renewal.until)


class LeaseStates(msgspec.Struct, frozen=True):
    """One state per lease, in the order of the request."""

    leases: tuple[LeaseState, ...]


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job after a worker settled it."""

    job_id: str
    state: State
    scheduled_for: datetime | None = None


class RemoteWorkers:
    """What workers over HTTP do with a store."""

    def __init__(self, store: Store, randomness: Randomness) -> None:
        self._store = store
        self._randomness = randomness

    async def claim(
        self,
        worker: WorkerInfo,
        limit: int,
        wait: timedelta,
        while_connected: Callable[[Awaitable[int]], Awaitable[int | None]],
    ) -> list[Job]:
        """Claim up to ``limit`` jobs; wait for some when there are none.

        ``while_connected`` awaits arrivals; it returns None when the client has disconnected.
        """
        await announce(self._store, worker, wait + PRESENT_FOR)
        request = Claim(
            queues=worker.queues,
            limit=limit,
            worker=worker.id,
            token=self._randomness.token(),
            types=worker.types or None,
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait.total_seconds()
        while True:
            seen = await self._store.arrivals(worker.queues, -1, timedelta(0))
            jobs = await without_damaged(self._store, await self._store.claim(request))
            left = deadline - loop.time()
            if jobs or left <= 0:
                return jobs
            wait = timedelta(seconds=min(left, 5.0))
            if await while_connected(self._store.arrivals(worker.queues, seen, wait)) is None:
                return []

    async def renew(self, fences: Sequence[Fence]) -> list[LeaseState]:
        """Renew leases, each by its own length."""
        renewals = await self._store.extend(fences)
        return [LeaseState.of(f.job_id, one) for f, one in zip(fences, renewals, strict=True)]

    async def note(self, note: JobNote) -> LeaseState:
        """Store a note on a job; StaleLeaseError when its lease is not the newest."""
        job_id = note.fence.job_id
        if not (await self._store.note([note]))[0]:
            raise StaleLeaseError(job_id)
        (cancel,) = await self._store.cancels([job_id])
        return _state(job_id, cancel, held=True)

    async def settle(self, fence: Fence, decide: Callable[[Job, datetime], Job]) -> Settlement:
        """Write the outcome of a job; a repeated call returns what the first one returned.

        StaleLeaseError when the job was claimed again since.
        """

        def decide_held(_: int, job: Job, now: datetime) -> Job:
            if lifecycle.has_answered(job, fence.token):
                return job
            if not lifecycle.may_answer(job, fence.token):
                raise StaleLeaseError(fence.job_id)
            return decide(lifecycle.held_again(job, now=now), now)

        found = await self._store.get([fence.job_id])
        ((_, after),), has_dependents = await decide_and_swap(self._store, found, decide_held)
        if has_dependents:
            await release_dependents(self._store)
        if after is None:
            raise NotFoundError(fence.job_id)
        return _settlement(after)


def _state(
    job_id: str, cancel: CancelRequest | None, *, held: bool, until: datetime | None = None
) -> LeaseState:
    return LeaseState(
        job_id=job_id,
        held=held,
        lease_until=until,
        cancel_requested=cancel is not None,
        cancel_force=cancel.force if cancel else False,
        cancel_reason=cancel.reason if cancel else "",
    )


def _settlement(job: Job) -> Settlement:
    return Settlement(
        job_id=job.id,
        state=job.state,
        scheduled_for=job.due_at if job.state is State.RETRYING else None,
    )
