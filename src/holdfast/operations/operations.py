"""What a client can do with jobs, on any store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Unpack

from msgspec.structs import replace

from holdfast.errors import Fault, NotFoundError, StoreUnavailableError, ValidationError
from holdfast.model.acceptance import read
from holdfast.model.amendment import JobMetadata
from holdfast.model.children import UNCOUNTED
from holdfast.model.job import TERMINAL, Job, Transition, attempts
from holdfast.model.results import (
    BatchResult,
    FailureDetails,
    FailureSearchResult,
    JobCounts,
    JobSearchResult,
    SubmissionResult,
    SubmissionStatus,
    UpdateResult,
    attempt_info,
)
from holdfast.model.statistics import Breakdown, QueueStats, summarise
from holdfast.model.status import (
    EventInfo,
    FailureInfo,
    JobPayload,
    JobStatus,
    LogEntry,
    job_payload,
    job_status,
)
from holdfast.model.submission import Step, Submission, chained
from holdfast.model.times import Moment, Span, format_duration, parse_duration
from holdfast.model.workers import WorkerInfo
from holdfast.operations import pauses
from holdfast.operations.batches import BatchChanges
from holdfast.operations.bounded_pages import MOST_RESULT, bounded_page
from holdfast.operations.changes import read_span
from holdfast.operations.control_on_store import ControlOnStore
from holdfast.operations.explain import Explanation, explain
from holdfast.operations.filters import FailureFilter, JobFilter, failure_search, job_search
from holdfast.operations.job_counts import count_jobs
from holdfast.operations.matching import find_matching, predicate, resolved
from holdfast.operations.oversight_on_store import Oversight
from holdfast.operations.queue_overview import queue_overview
from holdfast.operations.submitter import Submitter
from holdfast.operations.updates import update
from holdfast.operations.waiter import JobWaiter
from holdfast.operations.workers import workers
from holdfast.runtime.off_loop import off_loop
from holdfast.store import Page, QueueInfo, Store

POLL_INTERVAL = 5.0
"""A waiting caller reads its job at least this often, in seconds."""
LAST_READ = 1.0
"""How many seconds the store has for one more read when the timeout is over."""


class Operations(ControlOnStore, BatchChanges, Oversight):
    """The client operations over one store."""

    def __init__(
        self,
        store: Store,
        submitter: Submitter,
        *,
        waiter: JobWaiter | None = None,
        as_text: bool = False,
    ) -> None:
        """Without a waiter it has its own. ``as_text`` leaves JSON of jobs undecoded."""
        super().__init__(store)
        self._as_text = as_text
        self._submitter = submitter
        self._waiter = waiter or JobWaiter(store)

    async def close(self) -> None:
        """Finish pending writes and close the store."""
        await self._submitter.close()
        await self._waiter.close()
        await self.store.close()

    async def submit(
        self, submission: Submission, *, connection: object = None
    ) -> SubmissionResult:
        """Submit one job."""
        result = await self._submitter.submit(submission, connection=connection)
        if result.status is not SubmissionStatus.DUPLICATE:
            return result
        return (await self._described([result]))[0]

    async def prepare(self, submission: Submission) -> Job:
        """Check a submission and return its job, which ``add`` stores later: its id is known now.

        For a caller whose transaction is in another database, and ends before the job may exist.
        """
        return await self._submitter.prepare(submission)

    async def add(self, job: Job) -> SubmissionResult:
        """Store a prepared job."""
        result = await self._submitter.add(job)
        return (await self._described([result]))[0]

    def submit_now(self, submission: Submission) -> SubmissionResult | None:
        """Submit one job in this thread; None when ``submit`` must do it."""
        return self._submitter.submit_now(submission)

    async def submit_batch(
        self,
        submissions: Sequence[Submission | Mapping[str, object]],
        *,
        atomic: bool = True,
        connection: object = None,
    ) -> BatchResult:
        """Submit many jobs."""
        read_ = [s if isinstance(s, Submission) else read(s) for s in submissions]
        result = await self._submitter.submit_batch(read_, atomic=atomic, connection=connection)
        return BatchResult(
            total=result.total,
            accepted=result.accepted,
            rejected=result.rejected,
            results=tuple(await self._described(result.results)),
        )

    async def update(self, job_id: str, **metadata: Unpack[JobMetadata]) -> UpdateResult:
        """Change tags, correlation id, callback address, priority or due time of a job."""
        return await update(self.store, self._submitter, job_id, metadata)

    async def chain(
        self, steps: Sequence[Step], *, connection: object = None
    ) -> list[SubmissionResult]:
        """Submit jobs that run one after another, all or none."""
        return list((await self.submit_batch(chained(steps), connection=connection)).results)

    async def get(
        self, job_id: str, *, include_result: bool = True, include_history: bool = False
    ) -> JobStatus:
        """Return a job; NotFoundError when there is none."""
        job = await self.job(job_id)
        history = (await self.store.history([job_id]))[0] if include_history else None
        return await self._status(job, with_result=include_result, history=history)

    async def wait(self, job_id: str, *, timeout: Span | None = None) -> JobStatus:
        """Wait until a job has ended; TimeoutError when that takes longer than ``timeout``."""
        seconds = None if timeout is None else parse_duration(timeout).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                job = await self._until_ended(job_id)
        except TimeoutError:
            job = await self._last_read(job_id, f"after {seconds:g} s")
        return await self._status(job)

    async def _status(
        self, job: Job, *, with_result: bool = True, history: list[Transition] | None = None
    ) -> JobStatus:
        described = partial(
            job_status, job, with_result=with_result, history=history, as_text=self._as_text
        )
        return await off_loop(len(job.result or b""), described)

    async def _last_read(self, job_id: str, when: str) -> Job:
        """Return a job if it has ended; otherwise raise TimeoutError with its state."""
        message = f"job {job_id} has not ended, and the store does not answer, {when}"
        with contextlib.suppress(TimeoutError, StoreUnavailableError):
            async with asyncio.timeout(LAST_READ):
                job = await self.job(job_id)
                if job.state in TERMINAL:
                    return job
                message = f"job {job_id} is {job.state} {when}"
        raise TimeoutError(message)

    async def _until_ended(self, job_id: str) -> Job:
        ended = await self._waiter.add(job_id)
        try:
            job = await self.job(job_id)
            while job.state not in TERMINAL:
                await _wait_for(ended, POLL_INTERVAL)
                ended.clear()
                (found,) = await self.store.get([job_id])
                job = found or await self._deleted(job, ended)
            return job
        finally:
            self._waiter.remove(job_id, ended)

    async def _deleted(self, job: Job, ended: asyncio.Event) -> Job:
        """Return a job that was deleted when it ended, as BullMQ clients may require."""
        if self._waiter.end_of(job.id) is None:
            await _wait_for(ended, POLL_INTERVAL)
        event = self._waiter.end_of(job.id)
        if event is None or event.transition is None:
            raise NotFoundError(job.id)
        end = event.transition
        return replace(
            job,
            state=end.to_state,
            updated_at=end.at,
            finished_at=end.at,
            failure=end.failure,
            result=event.result,
        )

    async def search(self, wanted: JobFilter) -> JobSearchResult:
        """Return one page of jobs."""
        search = job_search(wanted)
        if predicate(wanted) is not None:
            search = replace(search, most_bytes=MOST_RESULT)
            page = await find_matching(self.store, search, wanted)
        else:
            page = await bounded_page(self.store, await resolved(self.store, search))
        size = sum(len(job.result or b"") for job in page.jobs)
        return JobSearchResult(
            jobs=await off_loop(size, partial(self._listed, page)),
            total_count=page.total,
            total_exact=page.total_exact,
            next_cursor=page.next_cursor,
            has_more=page.next_cursor is not None,
        )

    async def count(self, wanted: JobFilter) -> JobCounts:
        """Return how many jobs match, by state."""
        return await count_jobs(self.store, wanted)

    def _listed(self, page: Page) -> tuple[JobStatus, ...]:
        left_out, as_text = page.left_out, self._as_text
        return tuple(
            job_status(job, omitted=left_out.get(job.id, 0), as_text=as_text) for job in page.jobs
        )

    async def stats(
        self, *, time_range: Span = timedelta(hours=1), breakdown_by: Sequence[str] = ()
    ) -> QueueStats:
        """Return counts, rates and latencies."""
        window = read_span("time_range", time_range)
        try:
            breakdown = frozenset(Breakdown(word) for word in breakdown_by)
        except ValueError as error:
            raise ValidationError([Fault("breakdown_by", "INVALID", str(error))]) from None
        now = self.store.now()
        found = summarise(
            await self.store.stats(window), window=window, breakdown_by=breakdown, now=now
        )
        ready = [queue.ready_since for queue in await self.store.queues() if queue.ready_since]
        oldest = max(0.0, (now - min(ready)).total_seconds()) if ready else None
        return replace(found, oldest_ready_seconds=oldest)

    async def failure(self, job_id: str, *, include_all_attempts: bool = True) -> FailureDetails:
        """Return how a job failed, attempt by attempt."""
        job = await self.job(job_id)
        return await self._failure(job, all_attempts=include_all_attempts)

    async def failures(self, wanted: FailureFilter) -> FailureSearchResult:
        """Return one page of failed jobs, with counts over all that match."""
        search = replace(failure_search(wanted, now=self.store.now()), most_bytes=0)
        page = await self.store.failures(search)
        return FailureSearchResult(
            failures=tuple([await self._failure(job, all_attempts=False) for job in page.jobs]),
            total_count=page.total,
            next_cursor=page.next_cursor,
            by_category=page.by_category,
            by_code=page.by_code,
            by_type=page.by_type,
        )

    async def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncIterator[EventInfo]:
        """Yield the events of jobs, from now on or after a cursor; ends only without ``follow``."""
        cursor = after
        if cursor is None and follow:
            cursor = (await self.store.events(None, 0, timedelta(0))).cursor
        wait = timedelta(seconds=POLL_INTERVAL) if follow else timedelta(0)
        while True:
            page = await self.store.events(cursor, 500, wait)
            for event in page.events:
                yield event.info()
            cursor = page.cursor
            if not page.events and not follow:
                return

    async def logs(self, job_id: str) -> list[LogEntry]:
        """Return the lines a job's handler logged."""
        await self.job(job_id)
        (lines,) = await self.store.logs([job_id])
        return [LogEntry.of(line) for line in lines]

    async def queues(self) -> list[QueueInfo]:
        """Return every queue with its settings, counts and activity."""
        return await queue_overview(self.store)

    async def payload(self, job_id: str) -> JobPayload:
        """Return the payload of a job; NotFoundError when there is no job."""
        job = await self.job(job_id)
        return await off_loop(len(job.payload), partial(job_payload, job, as_text=self._as_text))

    async def set_ageing(self, queue: str, interval: Span | None) -> None:
        """Raise ready jobs of a queue by one level per interval; None turns it off."""
        span = None if interval is None else read_span("interval", interval)
        if span is not None and span <= timedelta(0):
            message = f"must be above zero, or null to turn it off, got {format_duration(span)}"
            raise ValidationError([Fault("interval", "OUT_OF_RANGE", message)])
        await self._configure(queue, {"ageing": span})

    async def pause(
        self, queue: str, *, reason: str = "", until: Moment | None = None, by: str = ""
    ) -> None:
        """Stop the jobs of a queue from starting."""
        await self._submitter.admission.admit_names(queue=queue)
        await pauses.pause(self.store, queue, reason=reason, until=until, by=by)

    async def resume(self, queue: str) -> None:
        """Let the jobs of a paused queue start again."""
        await self._submitter.admission.admit_names(queue=queue)
        await pauses.resume(self.store, queue)

    async def _configure(self, queue: str, settings: Mapping[str, object]) -> None:
        await self._submitter.admission.admit_names(queue=queue)
        await self.store.configure(queue, settings)

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers that are alive."""
        return await workers(self.store)

    async def explain(self, job_id: str) -> Explanation:
        """Explain why a job is not running now."""
        return await explain(self.store, await self.job(job_id))

    async def _failure(self, job: Job, *, all_attempts: bool) -> FailureDetails:
        history = (await self.store.history([job.id]))[0]
        made = attempts(job.id, history)
        return FailureDetails(
            job_id=job.id,
            type=job.type,
            queue=job.queue,
            final_state=job.state,
            total_attempts=max(job.attempt, sum(a.ended_by not in UNCOUNTED for a in made)),
            failure=FailureInfo.of(job.failure) if job.failure else None,
            attempts=tuple(attempt_info(a) for a in made) if all_attempts else (),
        )

    async def _described(self, results: Sequence[SubmissionResult]) -> list[SubmissionResult]:
        """Fill in state and times of the existing jobs that duplicates refer to."""
        ids = [r.job_id for r in results if r.status is SubmissionStatus.DUPLICATE]
        if not ids:
            return list(results)
        found = {job.id: job for job in await self.store.get(ids) if job is not None}
        return [
            SubmissionResult(
                job_id=r.job_id,
                status=r.status,
                state=job.state,
                created_at=job.created_at,
                scheduled_for=job.due_at or job.scheduled_at,
                existing_job_id=r.existing_job_id,
            )
            if r.status is SubmissionStatus.DUPLICATE and (job := found.get(r.job_id))
            else r
            for r in results
        ]


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


__all__ = ["Operations"]
