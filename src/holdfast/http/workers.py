"""Workers over HTTP: claim, renew, report and settle with a lease token."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec
from msgspec.structs import replace

from holdfast.errors import (
    ExecutionTimeoutError,
    NotFoundError,
    StaleLeaseError,
    StoreError,
)
from holdfast.http.presence import PRESENT_FOR
from holdfast.model import lifecycle
from holdfast.model.deadlines import (
    REMOTE,
    attempt_deadline,
    has_timed_out,
    is_overdue,
    timeout_failure,
)
from holdfast.model.job import (
    CancelRequest,
    Encoding,
    Failure,
    FailureCategory,
    Job,
    State,
    attempt_limit,
    read_extra,
)
from holdfast.model.payload import result_text
from holdfast.model.policy import MEBIBYTE
from holdfast.model.status import OutputEncoding, encoding_of, priority_name, public_tags
from holdfast.model.workers import WorkerInfo
from holdfast.observe.redaction import Redaction
from holdfast.operations.changes import Decide, decide_and_swap
from holdfast.operations.dependents import release_dependents
from holdfast.operations.quarantine import without_damaged, without_encrypted
from holdfast.operations.workers import announce
from holdfast.runtime.off_loop import off_loop
from holdfast.runtime.randomness import Randomness
from holdfast.store import Claim, Fence, JobNote, Store

MOST_CLAIMED = 32 * MEBIBYTE
"""Bytes of payloads and checkpoints in the response to a claim, unless one job has more."""


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
    previous_attempt_id: str | None
    lease_token: str
    lease_version: int
    """How often the job was claimed; a fencing token for your own writes."""
    lease_until: datetime | None
    lease_seconds: float
    """How long a renewal lasts; renew after a third of it."""
    timeout_seconds: float
    """How long this attempt may take."""
    deadline: datetime | None
    """When this attempt must have ended; after it the service fails it as TIMEOUT."""
    checkpoint: str | None
    """The checkpoint of an earlier attempt, as base64."""
    priority: str
    created_at: datetime
    tags: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    correlation_id: str | None = None
    idempotency_key: str | None = None
    depends_on: tuple[str, ...] = ()
    """The jobs that this one waited for; dependency-results returns their results."""

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
            max_attempts=attempt_limit(job),
            attempt_id=job.attempt_id,
            previous_attempt_id=job.previous_attempt_id,
            lease_token=job.lease.token,
            lease_version=job.lease_version,
            lease_until=job.lease.until,
            lease_seconds=job.lease_ttl.total_seconds(),
            timeout_seconds=job.timeout.total_seconds(),
            deadline=attempt_deadline(job),
            checkpoint=None
            if job.checkpoint is None
            else base64.b64encode(job.checkpoint).decode(),
            priority=priority_name(job.priority),
            created_at=job.created_at,
            tags=public_tags(job.tags),
            headers=read_extra(job.extra).headers,
            correlation_id=job.correlation_id or None,
            idempotency_key=job.idempotency_key or None,
            depends_on=job.depends_on,
        )


class ClaimResult(msgspec.Struct, frozen=True):
    """The claimed jobs."""

    jobs: tuple[ClaimedJob, ...]


class LeaseState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a lease is held, and whether a cancellation is requested."""

    job_id: str
    held: bool
    lease_until: datetime | None = None
    timed_out: bool = False
    """Whether the attempt is past its deadline: it failed as TIMEOUT, stop it."""
    cancel_requested: bool = False
    cancel_force: bool = False
    cancel_reason: str = ""


class LeaseStates(msgspec.Struct, frozen=True):
    """One state per lease, in the order of the request."""

    leases: tuple[LeaseState, ...]


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job after a worker settled it."""

    job_id: str
    state: State
    scheduled_for: datetime | None = None


class DependencyOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job that another one waited for."""

    output: object
    output_encoding: OutputEncoding


class DependencyOutputs(msgspec.Struct, frozen=True):
    """The results of the jobs that one waited for, by id."""

    results: dict[str, DependencyOutput]


class RemoteWorkers:
    """What workers over HTTP do with a store."""

    def __init__(
        self, store: Store, randomness: Randomness, redaction: Redaction, largest: int
    ) -> None:
        self._store = store
        self._largest = largest
        """Bytes of the largest payload."""
        self._randomness = randomness
        self._redaction = redaction

    async def claim(
        self,
        worker: WorkerInfo,
        limit: int,
        wait: timedelta,
        while_connected: Callable[[Coroutine[object, object, int]], Awaitable[int | None]],
    ) -> list[Job]:
        """Claim up to ``limit`` jobs, fewer of large ones; wait for some when there are none.

        ``while_connected`` awaits arrivals; it returns None when the client has disconnected.
        """
        await announce(self._store, worker, wait + PRESENT_FOR)
        request = Claim(
            queues=worker.queues,
            limit=limit,
            worker=worker.id,
            token="",
            types=worker.types or None,
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait.total_seconds()
        while True:
            seen = await self._store.arrivals(worker.queues, -1, timedelta(0))
            found = await without_damaged(self._store, await self._claim(request))
            jobs = await without_encrypted(self._store, found)
            left = deadline - loop.time()
            if jobs or left <= 0:
                return jobs
            wait = timedelta(seconds=min(left, 5.0))
            if await while_connected(self._store.arrivals(worker.queues, seen, wait)) is None:
                return []

    async def _claim(self, request: Claim) -> list[Job]:
        """Claim jobs until the next payload might not fit into the response, at least one."""
        jobs: list[Job] = []
        left, room = request.limit, MOST_CLAIMED
        while left and (not jobs or room >= self._largest):
            count = min(left, max(1, room // self._largest))
            token = REMOTE + self._randomness.token()
            try:
                found = await self._store.claim(replace(request, limit=count, token=token))
            except StoreError:
                if not jobs:
                    raise
                break  # the worker receives those that it holds
            jobs += found
            left -= count
            room -= sum(len(job.payload) + len(job.checkpoint or b"") for job in found)
            if len(found) < count:
                break
        return jobs

    async def renew(self, fences: Sequence[Fence]) -> list[LeaseState]:
        """Renew leases, each by its own length; fail those past their deadline."""
        jobs = await self._in_time(fences)
        renewals = await self._store.extend(fences)
        return [
            _state(
                fence.job_id,
                renewal.cancel,
                held=renewal.held,
                until=renewal.until,
                timed_out=job is not None and has_timed_out(job, fence.token),
            )
            for fence, renewal, job in zip(fences, renewals, jobs, strict=True)
        ]

    async def held(self, fence: Fence) -> Job:
        """Return the job that a worker runs.

        StaleLeaseError when its lease is not the newest, ExecutionTimeoutError after its deadline.
        """
        (job,) = await self._in_time([fence])
        if job is not None and has_timed_out(job, fence.token):
            raise ExecutionTimeoutError(job.id, job.timeout)
        if job is None or not lifecycle.may_answer(job, fence.token):
            raise StaleLeaseError(fence.job_id)
        return job

    async def note(self, note: JobNote) -> LeaseState:
        """Store a note with its secrets masked, and the attempt; errors as ``held``."""
        job = await self.held(note.fence)
        progress = note.progress and self._redaction.progress(note.progress)
        line = note.log and self._redaction.line(note.log)
        made = replace(
            note,
            progress=progress and replace(progress, attempt=job.attempt),
            log=line and replace(line, attempt=job.attempt),
        )
        if not (await self._store.note([made]))[0]:
            raise StaleLeaseError(job.id)
        return _state(job.id, job.cancel, held=True)

    async def dependency_outputs(self, fence: Fence) -> tuple[int, DependencyOutputs]:
        """Return the results of the jobs that a job waited for, and their bytes.

        Errors as ``held``.
        """
        await self.held(fence)
        found = await self._store.get(await self._store.parents(fence.job_id))
        parents = [job for job in found if job is not None]
        size = sum(len(job.result or b"") for job in parents)
        return size, await off_loop(size, partial(_outputs, parents))

    async def fail(self, fence: Fence, failure: Failure) -> Settlement:
        """Fail a job; its texts are stored with their secrets masked. Errors as ``settle``."""
        masked = self._redaction.failure(failure)
        jitter = self._randomness.jitter()

        def decide(job: Job, now: datetime) -> Job:
            return lifecycle.after_failure(job, masked, now=now, jitter=jitter)

        timed_out = failure.category is FailureCategory.TIMEOUT
        return await self.settle(fence, decide, even_late=timed_out)

    async def settle(
        self,
        fence: Fence,
        decide: Callable[[Job, datetime], Job],
        *,
        completes: bool = False,
        even_late: bool = False,
    ) -> Settlement:
        """Write the outcome of a job; a repeated call returns what the first one returned.

        After the attempt's deadline, unless ``even_late``, the job fails as TIMEOUT instead, and
        a completion raises ExecutionTimeoutError. StaleLeaseError when the job was claimed again
        since.
        """

        def decide_held(_: int, job: Job, now: datetime) -> Job:
            if lifecycle.has_answered(job, fence.token):
                return job
            if not lifecycle.may_answer(job, fence.token):
                raise StaleLeaseError(fence.job_id)
            held = lifecycle.held_again(job, now=now)
            late = is_overdue(job, now) and not even_late
            return self._timed_out(held, now) if late else decide(held, now)

        (after,) = await self._decide([fence.job_id], decide_held)
        if after is None:
            raise NotFoundError(fence.job_id)
        if completes and has_timed_out(after, fence.token):
            raise ExecutionTimeoutError(after.id, after.timeout)
        return _settlement(after)

    async def _in_time(self, fences: Sequence[Fence]) -> list[Job | None]:
        """Return the jobs of leases, after failing those that run past their deadline."""

        def decide(place: int, job: Job, now: datetime) -> Job:
            token = fences[place].token
            runs = job.state is State.RUNNING and lifecycle.may_answer(job, token)
            return self._timed_out(job, now) if runs and is_overdue(job, now) else job

        return await self._decide([fence.job_id for fence in fences], decide)

    def _timed_out(self, job: Job, now: datetime) -> Job:
        failure = timeout_failure(job.timeout.total_seconds())
        jitter = self._randomness.jitter()
        return lifecycle.after_failure(job, failure, now=now, jitter=jitter)

    async def _decide(self, ids: Sequence[str], decide: Decide) -> list[Job | None]:
        found = await self._store.get(ids)
        jobs, has_dependents = await decide_and_swap(self._store, found, decide)
        if has_dependents:
            await release_dependents(self._store)
        return [after for _, after in jobs]


def _outputs(parents: Sequence[Job]) -> DependencyOutputs:
    outputs = {job.id: result_text(job.result) for job in parents}
    return DependencyOutputs(
        {
            job_id: DependencyOutput(output=output, output_encoding=encoding_of(output))
            for job_id, output in outputs.items()
        }
    )


def _state(
    job_id: str,
    cancel: CancelRequest | None,
    *,
    held: bool,
    until: datetime | None = None,
    timed_out: bool = False,
) -> LeaseState:
    return LeaseState(
        job_id=job_id,
        held=held,
        lease_until=until,
        timed_out=timed_out,
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
