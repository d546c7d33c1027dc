"""Puts jobs into the store: accepts them, writes them in groups, retries while it is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
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
    plain_job,
)
from holdfast.model.job import Job
from holdfast.model.payload import raw_size, size_fault
from holdfast.model.policy import Limits
from holdfast.model.results import (
    BatchResult,
    SubmissionResult,
    SubmissionStatus,
    submission_result,
)
from holdfast.model.submission import Defaults, Parent, Spawner, Submission
from holdfast.operations.admission import SMALL_PAYLOAD, Add, Admission, new_jobs
from holdfast.operations.batch_answers import (
    batch_answer,
    job_answer,
    refused_batch,
    rejected,
    shortened,
)
from holdfast.operations.batcher import LONGEST_PAUSE, Batcher, no_answer, with_retries
from holdfast.operations.declarations import Declarations
from holdfast.operations.dependents import release_dependents
from holdfast.operations.single_flight import SingleFlight
from holdfast.operations.spawns import Spawns
from holdfast.operations.store_time import refresh_for_delays
from holdfast.runtime.off_loop import SHORT, off_loop
from holdfast.runtime.randomness import Randomness
from holdfast.runtime.timeouts import Timeouts
from holdfast.store import Added, AddStatus, Fence, PromptStore, Store, TransactionalStore
from holdfast.webhooks import CallbackScreen

T = TypeVar("T")

KEY_PAUSE = 0.25
"""The longest pause, in seconds, while another transaction holds the idempotency key."""
BUSY_KEYS = 4
"""How many jobs whose key another transaction holds are retried at the same time."""


class Submitter:
    """Turns submissions into stored jobs."""

    def __init__(
        self,
        store: Store,
        randomness: Randomness,
        limits: Limits,
        declarations: Declarations,
        admission: Admission | None = None,
        callbacks: CallbackScreen | None = None,
    ) -> None:
        self._store = store
        self._randomness = randomness
        self._limits = limits
        self.declarations = declarations
        self._middleware = declarations.registry.seams.middleware
        self._callbacks = callbacks
        self.admission = admission or Admission(store)
        self._prompt = store if isinstance(store, PromptStore) else None
        self._timeouts = Timeouts()
        self._batcher = self._new_batcher()
        self._keyed = self._new_batcher()
        """For jobs with an idempotency key: they may wait for another transaction to end."""
        self._busy = SingleFlight(BUSY_KEYS)
        """Retries the jobs that wait for such a transaction."""
        self._spawns = Spawns(store, self.persist, limits.submission_timeout)

    def _new_batcher(self) -> Batcher[Job | PlainSubmission, tuple[Job, Added]]:
        timeout = self._limits.submission_timeout.total_seconds()
        return Batcher(
            self._add_each,
            parallel=self._store.capabilities.parallel_writes,
            timeout=timeout,
            timeout_error=partial(no_answer, timeout),
        )

    async def close(self) -> None:
        """Wait until every job that was submitted is written."""
        await self._batcher.close()
        await self._keyed.close()
        await self._spawns.close()

    async def submit(
        self, submission: Submission, *, connection: object = None
    ) -> SubmissionResult:
        """Accept and store one job; submissions that wait together are written together."""
        if self._middleware.submits:
            submission = await self._middleware.prepared(submission)
        defaults = self._known(submission) or await self._defaults(submission)
        size = raw_size(submission.payload)
        usual, limits = None, self.admission
        if size <= SMALL_PAYLOAD and connection is None:
            read = partial(plain, submission, defaults)
            usual = read() if size <= SHORT else await off_loop(size, read)
        is_limited = limits.is_limited and not limits.admits(usual)
        if usual is not None and not is_limited and len(usual.payload) <= SMALL_PAYLOAD:
            return self._result(*await self._batcher.write(usual, self._add_one))
        job = await self._prepared(submission, connection)
        return await self.add(job, connection)

    async def prepare(self, submission: Submission) -> Job:
        """Accept a submission: return its job, which ``add`` stores; ValidationError otherwise."""
        return await self._prepared(await self._middleware.prepared(submission))

    async def _prepared(self, submission: Submission, connection: object = None) -> Job:
        defaults = self._known(submission) or await self._defaults(submission)
        (submission,) = await self.screened([submission])
        await refresh_for_delays(self._store, self.persist, [submission])
        parents = await self._parents([submission], connection) if submission.depends_on else None
        accepted = partial(self._accepted, submission, defaults, parents)
        return await off_loop(raw_size(submission.payload), accepted)

    async def add(self, job: Job, connection: object = None) -> SubmissionResult:
        """Store a prepared job; to store it again is harmless."""
        counted = await self._admit([job], connection)
        if connection is not None:
            added = (await self._add_in(connection, [job], atomic=True))[0]
        elif job.depends_on:
            added = (await self._add_all([job], atomic=True))[0]
        elif job.dedupe is not None:
            added = await self._add_keyed(job, (job.dedupe.scope, job.dedupe.key))
        else:
            _, added = await self._batcher.write(job, self._add_one)
        self.admission.settle(counted, [job], [added])
        return self._result(job, added)

    def submit_now(self, submission: Submission) -> SubmissionResult | None:
        """Accept and store one job in this thread, which may wait for the disk.

        None, with nothing written, when that is not possible: then ``submit`` must do it.
        """
        defaults, size = self._known(submission), raw_size(submission.payload)
        if self._prompt is None or defaults is None or self._middleware.submits:
            return None
        usual = plain(submission, defaults) if size <= SMALL_PAYLOAD else None
        if usual is None or self.admission.is_limited or len(usual.payload) > SMALL_PAYLOAD:
            return None
        job = plain_job(usual, self._randomness.uuid(), self._store.now())
        added = self._prompt.add_now(job, patient=True)
        return None if added is None else self._result(job, added)

    async def spawn(
        self, submission: Submission, fence: Fence, key: str | None, *, extra: bytes | None = None
    ) -> str:
        """Store a child of a running job under that job's lease; return its id.

        Children that wait together are written together. With an idempotency key that another
        job holds, return the id of that job. ``extra`` are the plain fields of the running job,
        which the child inherits.
        """
        (submission,) = await self.screened([submission])
        spawner = Spawner(fence.job_id, key or self._randomness.token(), extra)
        defaults = self._known(submission) or await self._defaults(submission)
        await refresh_for_delays(self._store, self.persist, [submission])
        parents, size = await self._parents([submission]), raw_size(submission.payload)
        job = await off_loop(size, partial(self._accepted, submission, defaults, parents, spawner))
        counted = await self._admit([job])
        added = await self._spawns.add(job, fence)
        self.admission.settle(counted, [job], [added])
        return self._result(job, added).job_id

    def fitting(self, job: Job) -> Job:
        """Return the job; ``ValidationError`` when its payload is larger than one may be."""
        if fault := size_fault(len(job.payload), self._limits.payload_bytes):
            raise ValidationError([fault])
        return self.admission.checked(job)

    async def submit_batch(
        self, submissions: Sequence[Submission], *, atomic: bool, connection: object = None
    ) -> BatchResult:
        """Store up to a thousand jobs that may depend on each other by ``ref``."""
        if not 1 <= len(submissions) <= self._limits.batch:
            message = f"must hold 1 to {self._limits.batch} submissions, got {len(submissions)}"
            raise ValidationError([Fault("jobs", "OUT_OF_RANGE", message)])
        if self._middleware.submits:
            submissions = [await self._middleware.prepared(one) for one in submissions]
        jobs = await self._accepted_batch(await self.screened(submissions), connection)
        refused = {i: job for i, job in enumerate(jobs) if isinstance(job, ValidationError)}
        if refused and atomic:
            raise refused_batch(refused)
        refused = shortened(refused)
        # Dependencies first: a store accepts a job only after those it depends on.
        valid = sorted((job for job in jobs if isinstance(job, Job)), key=lambda job: job.depth)
        counted = await self._admit(valid, connection)
        answers = await self._write(valid, connection, atomic=atomic) if valid else []
        self.admission.settle(counted, valid, answers)
        added = {job.id: answer for job, answer in zip(valid, answers, strict=True)}
        results = [
            rejected("", refused[i])
            if isinstance(job, ValidationError)
            else submission_result(job)
            if added[job.id].status is AddStatus.ACCEPTED
            else job_answer(partial(self._result, job, added[job.id]), job.id, i, atomic=atomic)
            for i, job in enumerate(jobs)
        ]
        return batch_answer(results)

    async def screened(self, submissions: Sequence[Submission]) -> Sequence[Submission]:
        """Add a fault to each submission whose callback address will be refused."""
        screen = self._callbacks
        if screen is None or not any(submission.callback_url for submission in submissions):
            return submissions
        return await screen.screened(submissions)

    async def count_new(self, submissions: Sequence[Submission]) -> int:
        """Return how many of these would be new jobs: valid, and with a key that no job holds."""
        accepted = await self._accepted_batch(submissions, None)
        jobs = [job for job in accepted if isinstance(job, Job)]
        return len(await self.persist(lambda: new_jobs(jobs, self._add_somewhere(None))))

    async def _admit(self, jobs: Sequence[Job], connection: object = None) -> Sequence[Job]:
        if not self.admission.applies_to(jobs):
            return ()
        add = self._add_somewhere(connection)
        return await self.persist(lambda: self.admission.admit(jobs, add))

    def _add_somewhere(self, connection: object) -> Add:
        if connection is not None:
            return partial(self._add_in, connection, atomic=False)
        return partial(self._add, atomic=False)

    def _accepted(
        self,
        submission: Submission,
        defaults: Defaults,
        parents: Mapping[str, Parent] | None,
        spawner: Spawner | None = None,
    ) -> Job:
        job = accept(
            submission,
            job_id=self._randomness.uuid() if spawner is None else spawner.child_id,
            now=self._store.now(),
            defaults=defaults,
            parents=parents,
            spawner=spawner,
        )
        return self.admission.checked(job)

    def _known(self, submission: Submission) -> Defaults | None:
        """The defaults of a submission, unless they must be read: most calls end here."""
        declarations = self.declarations
        found = declarations.known.get(named(submission))
        if found is None or found.until <= declarations.monotonic():
            return None
        return found.defaults if found.version == declarations.registry.version else None

    async def _defaults(self, submission: Submission) -> Defaults:
        key = named(submission)
        return (await self.persist(lambda: self.declarations.read([key])))[key]

    async def _accepted_batch(
        self, submissions: Sequence[Submission], connection: object
    ) -> list[Job | ValidationError]:
        keys = {named(submission) for submission in submissions}
        defaults = await self.persist(lambda: self.declarations.read(keys))
        await refresh_for_delays(self._store, self.persist, submissions)
        accepted = partial(
            accept_batch,
            submissions,
            job_ids=self._randomness.uuids(len(submissions)),
            now=self._store.now(),
            defaults_for=lambda submission: defaults[named(submission)],
            parents=await self._parents(submissions, connection),
        )
        size = sum(raw_size(submission.payload) for submission in submissions)
        return self.admission.checked_each(await off_loop(size, accepted))

    async def _parents(
        self, submissions: Sequence[Submission], connection: object = None
    ) -> dict[str, Parent]:
        if not any(submission.depends_on for submission in submissions):
            return {}
        named = outside_references(submissions)
        if connection is not None:
            return await self._transactional().lineage(named, connection)
        found = await self.persist(lambda: self._store.get(named))
        return {job.id: Parent(job.priority, job.depth) for job in found if job is not None}

    async def _write(
        self, jobs: Sequence[Job], connection: object, *, atomic: bool
    ) -> Sequence[Added]:
        if connection is not None:
            return await self._add_in(connection, jobs, atomic=atomic)
        return await self._add_all(jobs, atomic=atomic)

    async def _add_one(self, item: Job | PlainSubmission) -> tuple[Job, Added]:
        if isinstance(item, Job):
            job = item
        else:
            job = plain_job(item, self._randomness.uuid(), self._store.now())
        if self._prompt is not None and len(job.payload) <= SHORT:
            await asyncio.sleep(0)  # other callers of this turn gather, and are written together
            if (now := self._prompt.add_now(job)) is not None:
                return job, now
        added = await self.persist(lambda: self._store.add([job], atomic=False))
        return job, added[0]

    async def _add_each(
        self, items: Sequence[Job | PlainSubmission]
    ) -> Sequence[tuple[Job, Added]]:
        plain_jobs, ids = PlainJobs(self._store.now()), self._randomness.uuids(len(items))
        jobs = [
            plain_jobs.job(item, job_id) if isinstance(item, PlainSubmission) else item
            for item, job_id in zip(items, ids, strict=True)
        ]
        added = await self.persist(lambda: self._store.add(jobs, atomic=False))
        return list(zip(jobs, added, strict=True))  # none depends on another: no dependents

    async def _add_keyed(self, job: Job, key: tuple[str, str]) -> Added:
        """Add a job with a key; while another transaction holds the key, one caller retries."""
        if not self._busy.is_awaited(key):
            _, added = await self._keyed.write(job, self._add_one)
            if added.status is not AddStatus.BUSY:
                return added
        with self._busy.waiting(key):
            (added,) = await self.persist(
                lambda: self._busy.run(key, lambda: self._add([job], atomic=False)),
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
            message = "idempotency_key is held by a transaction that has not ended"
            raise StoreUnavailableError(message)
        return added

    async def _add_in(
        self, connection: object, jobs: Sequence[Job], *, atomic: bool
    ) -> Sequence[Added]:
        """Add jobs in the caller's own transaction."""
        return await self._transactional().add(jobs, atomic=atomic, connection=connection)

    def _transactional(self) -> TransactionalStore:
        if isinstance(self._store, TransactionalStore):
            return self._store
        message = "needs a store that shares your database: postgresql://"
        raise ValidationError([Fault("connection", "UNSUPPORTED", message)])

    def persist(
        self, call: Callable[[], Coroutine[Any, Any, T]], longest: float = LONGEST_PAUSE
    ) -> Coroutine[Any, Any, T]:
        """Repeat a call while the store is unavailable, at most for the submission timeout."""
        timeout = self._limits.submission_timeout
        return with_retries(call, self._randomness, timeout, self._timeouts, longest)

    def _result(self, job: Job, added: Added) -> SubmissionResult:
        match added.status:
            case AddStatus.ACCEPTED:
                return submission_result(job)
            case AddStatus.DUPLICATE:
                return SubmissionResult(
                    job_id=added.job_id,
                    status=SubmissionStatus.DUPLICATE,
                    existing_job_id=added.job_id,
                    existing_job_deleted=added.deleted,
                )
            case AddStatus.CONFLICT:
                raise DuplicateError(job.idempotency_key, added.job_id, deleted=added.deleted)
            case AddStatus.MISSING:
                message = f"must exist, got unknown {', '.join(added.missing)}"
                raise ValidationError([Fault("depends_on", "NOT_FOUND", message)])
            case AddStatus.ABORTED:
                return rejected(job.id, None)
            case AddStatus.BUSY:
                raise AssertionError(f"{added.status} cannot answer a submission")


def named(submission: Submission) -> tuple[str, str]:
    """Return the type and the queue that decide the defaults; without a queue, the task's."""
    queue = submission.queue
    return submission.type, queue if isinstance(queue, str) else ""  # validation rejects others
