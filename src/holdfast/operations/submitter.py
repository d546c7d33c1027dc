"""Getting jobs into the store: accept, write in groups, survive a store that is briefly away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from holdfast.errors import DuplicateError, Fault, StoreUnavailableError, ValidationError
from holdfast.model.acceptance import (
    PlainJobs,
    PlainSubmission,
    accept,
    accept_batch,
    outside_references,
    plain,
)
from holdfast.model.job import Job
from holdfast.model.policy import Limits
from holdfast.model.reserved import CALLBACKS
from holdfast.model.results import (
    BatchResult,
    SubmissionResult,
    SubmissionStatus,
    submission_result,
)
from holdfast.model.submission import Defaults, Parent, Spawner, Submission
from holdfast.operations.batcher import Batcher
from holdfast.operations.dependents import release_dependents
from holdfast.operations.quota import Quota
from holdfast.operations.single_flight import SingleFlight
from holdfast.runtime.backoff import GrowingDelay
from holdfast.runtime.randomness import Randomness
from holdfast.runtime.timeouts import Timeouts
from holdfast.store import (
    Added,
    AddStatus,
    Fence,
    LanedStore,
    RecordWrite,
    Store,
    TransactionalStore,
)

T = TypeVar("T")
Rejected = ValidationError | DuplicateError

LONGEST_PAUSE = 2.0
"""Seconds between two tries at a store that is away, at most."""
KEY_PAUSE = 0.25
"""Seconds between two tries at a key, at most: its holder may be done at any time."""
ASIDE = 4
"""How many jobs are tried at a time whose key is in the hands of somebody else's transaction."""


class Submitter:
    """Turns submissions into stored jobs."""

    def __init__(
        self,
        store: Store,
        randomness: Randomness,
        limits: Limits,
        defaults_for: Callable[[str, str | None], Defaults],
        quota: Quota | None = None,
    ) -> None:
        self._store = store
        self._randomness = randomness
        self._limits = limits
        self._defaults_for = defaults_for
        self._quota = quota
        self._is_limited = quota is not None and quota.is_limited
        self._deadlines = Timeouts()
        self._batcher = self._new_batcher()
        self._keyed = self._new_batcher()
        """For jobs with a key: somebody may have to make up his mind about it first."""
        self._turns = SingleFlight(ASIDE)
        """Of those who wait for that."""
        self._calls_back = False
        """Whether the store knows that jobs may want to be called back."""

    def _new_batcher(self) -> Batcher[Job | PlainSubmission, tuple[Job, Added]]:
        patience = self._limits.submission_timeout.total_seconds()
        return Batcher(
            self._add_each,
            lanes=self._store.LANES if isinstance(self._store, LanedStore) else 1,
            patience=patience,
            late=partial(_silent, patience),
        )

    async def close(self) -> None:
        """Wait for what is on its way."""
        await self._batcher.close()
        await self._keyed.close()

    async def submit(
        self, submission: Submission, *, connection: object = None
    ) -> SubmissionResult:
        """Accept and store one job; submits that wait together are written together."""
        asked = plain(submission, self._defaults_for(submission.type, submission.queue))
        if asked is not None and connection is None and not self._is_limited:
            return self._result(*await self._batcher.write(asked, self._add_one))
        parents = await self._parents([submission], connection) if submission.depends_on else None
        job = self._accepted(submission, parents)
        await self._admit([job])
        if connection is not None:
            added = (await self._enlist([job], connection, atomic=True))[0]
        elif job.depends_on:
            added = (await self._add_all([job], atomic=True))[0]
        elif job.dedupe is not None:
            added = await self._add_keyed(job, (job.dedupe.scope, job.dedupe.key))
        else:
            _, added = await self._batcher.write(job, self._add_one)
        return self._result(job, added)

    async def spawn(self, submission: Submission, fence: Fence, key: str | None) -> str:
        """Store a child of a running job, under that job's lease; return its id."""
        spawner = Spawner(fence.job_id, key or self._randomness.token())
        job = self._accepted(submission, await self._parents([submission]), spawner)
        await self._admit([job])
        added = await self.persist(lambda: self._store.add([job], fence=fence))
        return self._result(job, added[0]).job_id

    async def submit_batch(
        self, submissions: Sequence[Submission], *, atomic: bool, connection: object = None
    ) -> BatchResult:
        """Store up to a thousand jobs that may depend on each other by ``ref``."""
        if not 1 <= len(submissions) <= self._limits.batch:
            told = f"must hold 1 to {self._limits.batch} submissions, got {len(submissions)}"
            raise ValidationError([Fault("jobs", "OUT_OF_RANGE", told)])
        jobs = await self._accepted_batch(submissions, connection)
        refused = {i: job for i, job in enumerate(jobs) if isinstance(job, ValidationError)}
        if refused and atomic:
            raise ValidationError(
                [
                    Fault(f"jobs[{i}].{fault.field}", fault.code, fault.message)
                    for i, error in refused.items()
                    for fault in error.faults
                ]
            )
        # Dependencies first: a store takes a job only after those it names.
        good = sorted((job for job in jobs if isinstance(job, Job)), key=lambda job: job.depth)
        await self._admit(good)
        answers = await self._write(good, connection, atomic=atomic) if good else []
        added = {job.id: answer for job, answer in zip(good, answers, strict=True)}
        results = [
            _rejected("", job)
            if isinstance(job, ValidationError)
            else self._batch_result(job, added[job.id], i, atomic=atomic)
            for i, job in enumerate(jobs)
        ]
        rejected = sum(result.status is SubmissionStatus.REJECTED for result in results)
        return BatchResult(
            total=len(results),
            accepted=len(results) - rejected,
            rejected=rejected,
            results=tuple(results),
        )

    async def _admit(self, jobs: Sequence[Job]) -> None:
        if not self._calls_back and any(job.callback_url for job in jobs):
            since = self._store.now().isoformat().encode()
            draft = RecordWrite(kind=CALLBACKS, key=CALLBACKS, data=since, version=0)
            await self.persist(lambda: self._store.keep([draft]))
            self._calls_back = True
        quota = self._quota
        if quota is not None and quota.is_limited:
            await self.persist(lambda: quota.admit(jobs))

    def _accepted(
        self,
        submission: Submission,
        parents: Mapping[str, Parent] | None,
        spawner: Spawner | None = None,
    ) -> Job:
        return accept(
            submission,
            job_id=self._randomness.uuid(),
            now=self._store.now(),
            defaults=self._defaults_for(submission.type, submission.queue),
            parents=parents,
            spawner=spawner,
        )

    async def _accepted_batch(
        self, submissions: Sequence[Submission], connection: object
    ) -> list[Job | ValidationError]:
        return accept_batch(
            submissions,
            job_ids=self._randomness.uuids(len(submissions)),
            now=self._store.now(),
            defaults_for=lambda s: self._defaults_for(s.type, s.queue),
            parents=await self._parents(submissions, connection),
        )

    async def _parents(
        self, submissions: Sequence[Submission], connection: object = None
    ) -> dict[str, Parent]:
        if not any(submission.depends_on for submission in submissions):
            return {}
        named = outside_references(submissions)
        if connection is not None:
            return await self._shared().lineage(named, connection)
        found = await self.persist(lambda: self._store.get(named))
        return {job.id: Parent(job.priority, job.depth) for job in found if job is not None}

    async def _write(
        self, jobs: Sequence[Job], connection: object, *, atomic: bool
    ) -> Sequence[Added]:
        if connection is not None:
            return await self._enlist(jobs, connection, atomic=atomic)
        return await self._add_all(jobs, atomic=atomic)

    async def _add_one(self, asked: Job | PlainSubmission) -> tuple[Job, Added]:
        job = asked if isinstance(asked, Job) else self._born(asked)
        added = await self.persist(lambda: self._store.add([job], atomic=False))
        return job, added[0]

    def _born(self, asked: PlainSubmission) -> Job:
        return PlainJobs(self._store.now()).job(asked, self._randomness.uuid())

    async def _add_each(
        self, asked: Sequence[Job | PlainSubmission]
    ) -> Sequence[tuple[Job, Added]]:
        births, ids = PlainJobs(self._store.now()), self._randomness.uuids(len(asked))
        jobs = [
            births.job(one, job_id) if isinstance(one, PlainSubmission) else one
            for one, job_id in zip(asked, ids, strict=True)
        ]
        added = await self.persist(lambda: self._store.add(jobs, atomic=False))
        return list(zip(jobs, added, strict=True))  # none waits for another: none can be ripe

    async def _add_keyed(self, job: Job, key: tuple[str, str]) -> Added:
        """Add a job with a key; while a transaction has taken that, with others who want it."""
        if not self._turns.is_wanted(key):
            _, added = await self._keyed.write(job, self._add_one)
            if added.status is not AddStatus.BUSY:
                return added
        with self._turns.wanting(key):
            (added,) = await self.persist(
                lambda: self._turns.take(key, lambda: self._add([job], atomic=False)),
                longest=KEY_PAUSE,
            )
        return added

    async def _add_all(self, jobs: Sequence[Job], *, atomic: bool) -> Sequence[Added]:
        added = await self.persist(lambda: self._add(jobs, atomic=atomic))
        for answer in added:
            if answer.has_dependents:
                await self.persist(lambda: release_dependents(self._store))
                break
        return added

    async def _add(self, jobs: Sequence[Job], *, atomic: bool) -> Sequence[Added]:
        added = await self._store.add(jobs, atomic=atomic)
        if any(answer.status is AddStatus.BUSY for answer in added):
            told = "idempotency_key is in the hands of a transaction that has not ended"
            raise StoreUnavailableError(told)
        return added

    async def _enlist(
        self, jobs: Sequence[Job], connection: object, *, atomic: bool
    ) -> Sequence[Added]:
        return await self._shared().add(jobs, atomic=atomic, connection=connection)

    def _shared(self) -> TransactionalStore:
        if isinstance(self._store, TransactionalStore):
            return self._store
        told = "needs a store that shares your database: postgresql://"
        raise ValidationError([Fault("connection", "UNSUPPORTED", told)])

    def persist(
        self, call: Callable[[], Coroutine[Any, Any, T]], longest: float = LONGEST_PAUSE
    ) -> Coroutine[Any, Any, T]:
        """Repeat a call while the store is away, at most for the submission timeout."""
        patience = self._limits.submission_timeout
        return patiently(call, self._randomness, patience, self._deadlines, longest)

    def _result(self, job: Job, added: Added) -> SubmissionResult:
        match added.status:
            case AddStatus.ACCEPTED:
                return submission_result(job)
            case AddStatus.DUPLICATE:
                return SubmissionResult(
                    job_id=added.job_id,
                    status=SubmissionStatus.DUPLICATE,
                    existing_job_id=added.job_id,
                )
            case AddStatus.CONFLICT:
                raise DuplicateError(job.idempotency_key, added.job_id)
            case AddStatus.MISSING:
                told = f"must exist, got unknown {', '.join(added.missing)}"
                raise ValidationError([Fault("depends_on", "NOT_FOUND", told)])
            case AddStatus.ABORTED | AddStatus.BUSY:
                raise AssertionError(f"{added.status} is no answer to one submission")

    def _batch_result(self, job: Job, added: Added, i: int, *, atomic: bool) -> SubmissionResult:
        if added.status is AddStatus.ACCEPTED:
            return submission_result(job)
        if added.status is AddStatus.ABORTED:
            return _rejected(job.id, None)
        try:
            return self._result(job, added)
        except ValidationError as error:
            if atomic:
                raise ValidationError(
                    [Fault(f"jobs[{i}].{f.field}", f.code, f.message) for f in error.faults]
                ) from None
            return _rejected(job.id, error)
        except DuplicateError as error:
            if atomic:
                raise
            return _rejected(job.id, error)


def _rejected(job_id: str, error: Rejected | None) -> SubmissionResult:
    return SubmissionResult(
        job_id=job_id,
        status=SubmissionStatus.REJECTED,
        state=None,
        existing_job_id=error.existing_job_id if isinstance(error, DuplicateError) else None,
        error=error,
    )


def _silent(seconds: float) -> StoreUnavailableError:
    return StoreUnavailableError(f"the store did not answer within {seconds:g} s")


async def patiently(
    call: Callable[[], Coroutine[Any, Any, T]],
    randomness: Randomness,
    patience: timedelta,
    deadlines: Timeouts | None = None,
    longest: float = LONGEST_PAUSE,
) -> T:
    """Await a call; repeat it with growing, jittered pauses while the store is unavailable.

    Raises ``StoreUnavailableError`` when there is no answer within ``patience``, be it that
    the store keeps refusing, with what it said last, or that it stays silent.
    """
    loop = asyncio.get_running_loop()
    seconds = patience.total_seconds()
    deadline = loop.time() + seconds
    deadlines = deadlines or Timeouts()
    pauses: GrowingDelay | None = None
    trouble: StoreUnavailableError | None = None
    while True:
        try:
            return await deadlines.soon(call(), deadline - loop.time())
        except TimeoutError:
            raise trouble or _silent(seconds) from None
        except StoreUnavailableError as error:
            trouble = error
            pauses = pauses or GrowingDelay(randomness, longest=longest)
            wait = pauses.next()
            if loop.time() + wait > deadline:
                raise
            await asyncio.sleep(wait)
            if loop.time() >= deadline:  # it took longer than that
                raise


R = TypeVar("R")


__all__ = ["Submitter", "patiently"]
