"""The operations on jobs, the same for an app with a store and for a client of a service."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Protocol, Unpack

from holdfast.model.amendment import JobMetadata
from holdfast.model.job import Priority
from holdfast.model.results import (
    BatchCancellationResult,
    BatchDeletionResult,
    BatchResult,
    BatchRetryResult,
    CancellationResult,
    DeletionResult,
    FailureDetails,
    FailureSearchResult,
    JobCounts,
    JobSearchResult,
    ReleaseResult,
    RetryResult,
    SubmissionResult,
    UpdateResult,
)
from holdfast.model.statistics import QueueStats
from holdfast.model.status import EventInfo, JobPayload, JobStatus, LogEntry
from holdfast.model.submission import Step, Submission, SubmitOptions
from holdfast.model.times import Moment, Span
from holdfast.model.workers import WorkerInfo
from holdfast.operations.control import Control, ControlBackend
from holdfast.operations.explain import Explanation
from holdfast.operations.filters import FailureFilter, JobFilter
from holdfast.operations.oversight import OversightBackend, OversightOperations
from holdfast.store import QueueInfo


class OperationsBackend(ControlBackend, OversightBackend, Protocol):
    """Where the operations run: ``Operations`` on a store, ``RemoteOperations`` at a service."""

    async def submit(
        self, submission: Submission, *, connection: object = None
    ) -> SubmissionResult: ...

    def submit_now(self, submission: Submission) -> SubmissionResult | None:
        """Submit a job in this thread; None where only ``submit`` can."""
        return None

    async def submit_batch(
        self,
        submissions: Sequence[Submission | Mapping[str, object]],
        *,
        atomic: bool = True,
        connection: object = None,
    ) -> BatchResult: ...

    async def chain(
        self, steps: Sequence[Step], *, connection: object = None
    ) -> list[SubmissionResult]: ...

    async def get(
        self, job_id: str, *, include_result: bool = True, include_history: bool = False
    ) -> JobStatus: ...

    async def wait(self, job_id: str, *, timeout: Span | None = None) -> JobStatus: ...

    async def search(self, wanted: JobFilter) -> JobSearchResult: ...

    async def count(self, wanted: JobFilter) -> JobCounts: ...

    async def stats(
        self, *, time_range: Span = timedelta(hours=1), breakdown_by: Sequence[str] = ()
    ) -> QueueStats: ...

    async def cancel(
        self, job_id: str, *, reason: str = "", force: bool = False
    ) -> CancellationResult: ...

    async def cancel_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        reason: str = "",
        force: bool = False,
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchCancellationResult: ...

    async def retry_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchRetryResult: ...

    async def delete_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchDeletionResult: ...

    async def failure(
        self, job_id: str, *, include_all_attempts: bool = True
    ) -> FailureDetails: ...

    async def failures(self, wanted: FailureFilter) -> FailureSearchResult: ...

    async def retry(
        self,
        job_id: str,
        *,
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
    ) -> RetryResult: ...

    async def update(self, job_id: str, **metadata: Unpack[JobMetadata]) -> UpdateResult: ...

    async def release(self, job_id: str) -> ReleaseResult: ...

    async def delete(self, job_id: str) -> DeletionResult: ...

    def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncIterator[EventInfo]: ...

    async def logs(self, job_id: str) -> list[LogEntry]: ...

    async def queues(self) -> list[QueueInfo]: ...

    async def payload(self, job_id: str) -> JobPayload: ...

    async def set_ageing(self, queue: str, interval: Span | None) -> None: ...

    async def pause(
        self, queue: str, *, reason: str = "", until: Moment | None = None, by: str = ""
    ) -> None: ...

    async def resume(self, queue: str) -> None: ...

    async def workers(self) -> list[WorkerInfo]: ...

    async def explain(self, job_id: str) -> Explanation: ...

    async def close(self) -> None: ...


class JobOperations(Control, OversightOperations):
    """What a client can do with jobs."""

    @property
    @abstractmethod
    def operations(self) -> OperationsBackend:
        """The operations of an open app or client; RuntimeError before it is open."""

    async def submit(
        self,
        type_: str,
        payload: object = None,
        *,
        connection: object = None,
        **options: Unpack[SubmitOptions],
    ) -> SubmissionResult:
        """Submit a job by type name.

        Returns when the job is durable. ValidationError lists all faults; DuplicateError means
        that the idempotency key was used with another payload.
        """
        submission = Submission(type=type_, payload=payload, **options)
        return await self.operations.submit(submission, connection=connection)

    async def submit_batch(
        self,
        jobs: Sequence[Submission | Mapping[str, object]],
        *,
        atomic: bool = True,
        connection: object = None,
    ) -> BatchResult:
        """Submit 1 to 1000 jobs, which may depend on each other by ``ref``.

        ``atomic``: all or none, and faults raise. Otherwise each job has its own result.
        """
        return await self.operations.submit_batch(jobs, atomic=atomic, connection=connection)

    async def chain(self, *steps: Step, connection: object = None) -> list[SubmissionResult]:
        """Submit jobs that run one after another; a list is a step whose jobs run in parallel.

        ``await app.chain(fetch.submission(url), [a.submission(), b.submission()],
        merge.submission())``. All or none are stored. A step starts when every job of the previous
        step has completed, and everything that those jobs spawned. It reads all their results with
        ``ctx.dependency_results()``. To wait for a job without what it spawns, submit with
        ``depends_on``.
        """
        return await self.operations.chain(steps, connection=connection)

    async def get(
        self, job_id: str, *, include_result: bool = True, include_history: bool = False
    ) -> JobStatus:
        """Return a job; NotFoundError when there is none."""
        return await self.operations.get(
            job_id, include_result=include_result, include_history=include_history
        )

    async def wait(self, job_id: str, *, timeout: Span | None = None) -> JobStatus:
        """Wait until a job has ended; TimeoutError when that takes longer than ``timeout``."""
        return await self.operations.wait(job_id, timeout=timeout)

    async def search(self, **wanted: Unpack[JobFilter]) -> JobSearchResult:
        """Return one page of jobs that match all filters."""
        return await self.operations.search(wanted)

    async def count(self, **wanted: Unpack[JobFilter]) -> JobCounts:
        """Return how many jobs match all filters, by state: exact, or up to a bound.

        Filters by type, queue, state and priority are counted exactly, whatever there is.
        """
        return await self.operations.count(wanted)

    async def stats(
        self, *, time_range: Span = timedelta(hours=1), breakdown_by: Sequence[str] = ()
    ) -> QueueStats:
        """Return counts, rates and latencies; ``breakdown_by`` QUEUE, TYPE, PRIORITY, STATE."""
        return await self.operations.stats(time_range=time_range, breakdown_by=breakdown_by)

    async def cancel(
        self, job_id: str, *, reason: str = "", force: bool = False
    ) -> CancellationResult:
        """Cancel a waiting job; request a running one to stop, with ``force`` interrupt it."""
        return await self.operations.cancel(job_id, reason=reason, force=force)

    async def cancel_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        reason: str = "",
        force: bool = False,
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchCancellationResult:
        """Cancel many jobs, by ids or by filter; a dry run only counts.

        A filter selects every job that matches: ``limit``, ``cursor`` and ``order`` are refused.
        Jobs that changed after ``as_of`` are skipped.
        """
        return await self.operations.cancel_batch(
            job_ids=job_ids,
            filter=filter,
            reason=reason,
            force=force,
            as_of=as_of,
            dry_run=dry_run,
        )

    async def retry_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchRetryResult:
        """Run many FAILED and DEAD_LETTER jobs again, by ids or by filter; others are skipped.

        A retried job waits for its retried dependencies. ``filter``, ``as_of`` and ``dry_run`` are
        those of ``cancel_batch``.
        """
        return await self.operations.retry_batch(
            job_ids=job_ids,
            filter=filter,
            reset_attempts=reset_attempts,
            priority=priority,
            delay=delay,
            as_of=as_of,
            dry_run=dry_run,
        )

    async def delete_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchDeletionResult:
        """Delete many ended jobs, by ids or by filter; others are skipped.

        ``filter``, ``as_of`` and ``dry_run`` are those of ``cancel_batch``.
        """
        return await self.operations.delete_batch(
            job_ids=job_ids, filter=filter, as_of=as_of, dry_run=dry_run
        )

    async def failure(self, job_id: str, *, include_all_attempts: bool = True) -> FailureDetails:
        """Return how a job failed, attempt by attempt."""
        return await self.operations.failure(job_id, include_all_attempts=include_all_attempts)

    async def failures(self, **wanted: Unpack[FailureFilter]) -> FailureSearchResult:
        """Return one page of failed jobs, with counts over all that match."""
        return await self.operations.failures(wanted)

    async def retry(
        self,
        job_id: str,
        *,
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
    ) -> RetryResult:
        """Run a FAILED or DEAD_LETTER job again."""
        return await self.operations.retry(
            job_id, reset_attempts=reset_attempts, priority=priority, delay=delay
        )

    async def update(self, job_id: str, **metadata: Unpack[JobMetadata]) -> UpdateResult:
        """Change a job's metadata, all that is given or nothing.

        Tags (they replace all others) and the correlation id at any time, the callback address
        until the job has ended, the priority while it waits, ``delay`` or ``scheduled_at`` until
        it is ready; ``delay=0`` makes it due at once. Checked like a submission.
        """
        return await self.operations.update(job_id, **metadata)

    async def release(self, job_id: str) -> ReleaseResult:
        """Release a job that was submitted with ``hold=True``."""
        return await self.operations.release(job_id)

    async def delete(self, job_id: str) -> DeletionResult:
        """Delete an ended job that no live job depends on."""
        return await self.operations.delete(job_id)

    def events(self, *, after: str | None = None, follow: bool = True) -> AsyncIterator[EventInfo]:
        """Yield the events of jobs, from now on or after an event's cursor."""
        return self.operations.events(after=after, follow=follow)

    async def logs(self, job_id: str) -> list[LogEntry]:
        """Return the lines a job's handler logged."""
        return await self.operations.logs(job_id)

    async def queues(self) -> list[QueueInfo]:
        """Return every queue with its settings, counts and what happens in it.

        ``activity`` has ready and running jobs, the age of the oldest ready one, workers, rates,
        the failures of the last hour, and limits that hold jobs back.
        """
        return await self.operations.queues()

    async def payload(self, job_id: str) -> JobPayload:
        """Return the payload that a job was submitted with; NotFoundError when there is no job."""
        return await self.operations.payload(job_id)

    async def set_ageing(self, queue: str, interval: Span | None) -> None:
        """Raise the ready jobs of a queue by one priority level per interval; None: not at all.

        Without ageing, a job of low priority waits as long as there are more urgent ones.
        """
        await self.operations.set_ageing(queue, interval)

    async def pause(
        self, queue: str, *, reason: str = "", until: Moment | None = None, by: str = ""
    ) -> None:
        """Stop the jobs of a queue from starting; running ones finish.

        ``until``: it resumes by itself then, by the store's clock, while a worker runs.
        """
        await self.operations.pause(queue, reason=reason, until=until, by=by)

    async def resume(self, queue: str) -> None:
        """Let the jobs of a paused queue start again."""
        await self.operations.resume(queue)

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers that are alive."""
        return await self.operations.workers()

    async def explain(self, job_id: str) -> Explanation:
        """Explain why a job is not running now."""
        return await self.operations.explain(job_id)
