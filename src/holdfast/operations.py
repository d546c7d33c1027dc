"""What a client can do with jobs, on any store: decide with the lifecycle, swap under the fence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta

from holdfast import lifecycle
from holdfast.chance import Chance
from holdfast.errors import Fault, NotFoundError, ValidationError
from holdfast.explain import Explanation, explain
from holdfast.form import MAX_KEY, Submission
from holdfast.job import TERMINAL, Job, LogLine, Priority, State, attempts
from holdfast.payload import clean
from holdfast.releasing import release_dependents
from holdfast.results import (
    BatchCancellationResult,
    BatchResult,
    CancellationResult,
    CancellationStatus,
    DeletionResult,
    DeletionStatus,
    FailureDetails,
    FailureSearchResult,
    JobStatus,
    ReleaseResult,
    ReleaseStatus,
    RetryResult,
    RetryStatus,
    SearchResult,
    SubmissionResult,
    SubmissionStatus,
    attempt_info,
    job_status,
)
from holdfast.searching import FailureFilter, JobFilter, failure_search, job_search
from holdfast.statistics import Breakdown, QueueStats, summarise
from holdfast.store import Change, JobEvent, QueueInfo, Store
from holdfast.submission import read
from holdfast.submitting import Submitter
from holdfast.timing import Span, parse_duration
from holdfast.watcher import Watcher

DECISIONS = 10
"""How often a decision is made again when the job moved meanwhile."""

LONGEST_LOOK = 5.0
"""A waiter looks for itself at least so often, in seconds."""


class Operations:
    """The client operations over one store."""

    def __init__(self, store: Store, submitter: Submitter, chance: Chance) -> None:
        self.store = store
        self._submitter = submitter
        self._chance = chance
        self._watcher = Watcher(store)

    async def close(self) -> None:
        """Finish what is under way."""
        await self._submitter.close()
        await self._watcher.close()

    async def submit(
        self, submission: Submission, *, connection: object = None
    ) -> SubmissionResult:
        """Submit one job."""
        result = await self._submitter.submit(submission, connection=connection)
        return (await self._described([result]))[0]

    async def submit_batch(
        self,
        submissions: Sequence[Submission | Mapping[str, object]],
        *,
        atomic: bool = True,
        connection: object = None,
    ) -> BatchResult:
        """Submit many jobs."""
        made = [s if isinstance(s, Submission) else read(s) for s in submissions]
        result = await self._submitter.submit_batch(made, atomic=atomic, connection=connection)
        return BatchResult(
            total=result.total,
            accepted=result.accepted,
            rejected=result.rejected,
            results=tuple(await self._described(result.results)),
        )

    async def get(
        self, job_id: str, *, include_result: bool = True, include_history: bool = False
    ) -> JobStatus:
        """Return a job; NotFoundError when there is none."""
        job = await self.job(job_id)
        history = (await self.store.history([job_id]))[0] if include_history else None
        return job_status(job, with_result=include_result, history=history)

    async def wait(self, job_id: str, *, timeout: Span | None = None) -> JobStatus:
        """Wait until a job has ended; TimeoutError when that takes longer than ``timeout``."""
        patience = None if timeout is None else parse_duration(timeout).total_seconds()
        async with asyncio.timeout(patience):
            ended = await self._watcher.watch(job_id)
            try:
                while True:
                    ended.clear()
                    job = await self.job(job_id)
                    if job.state in TERMINAL:
                        return job_status(job)
                    await _any_of(ended, LONGEST_LOOK)
            finally:
                self._watcher.forget(job_id, ended)

    async def search(self, wanted: JobFilter) -> SearchResult:
        """Return one page of jobs."""
        page = await self.store.find(job_search(wanted))
        return SearchResult(
            jobs=tuple(job_status(job) for job in page.jobs),
            total_count=page.total,
            total_exact=page.total_exact,
            next_cursor=page.next_cursor,
            has_more=page.next_cursor is not None,
        )

    async def stats(
        self, *, time_range: Span = timedelta(hours=1), breakdown_by: Sequence[str] = ()
    ) -> QueueStats:
        """Return counts, rates and latencies."""
        window = _span("time_range", time_range)
        try:
            breakdown = frozenset(Breakdown(word) for word in breakdown_by)
        except ValueError as error:
            raise ValidationError([Fault("breakdown_by", "INVALID", str(error))]) from None
        return summarise(await self.store.stats(window), window=window, breakdown_by=breakdown)

    async def cancel(
        self, job_id: str, *, reason: str = "", force: bool = False
    ) -> CancellationResult:
        """Cancel a job that waits; ask one that runs to stop (``force`` interrupts it)."""
        reason = clean(reason, MAX_KEY)
        before, after = await self._decide(
            job_id,
            lambda job: lifecycle.cancel_requested(
                job, reason=reason, force=force, now=self.store.now()
            ),
        )
        if before is None or after is None:
            return CancellationResult(job_id=job_id, status=CancellationStatus.NOT_FOUND)
        if before.state in TERMINAL:
            status, told = CancellationStatus.ALREADY_COMPLETE, f"already {before.state}"
        elif after.state is State.CANCELLED:
            status, told = CancellationStatus.CANCELLED, reason
        else:
            status = CancellationStatus.CANCEL_REQUESTED
            told = "it is being stopped" if force else "its next checkpoint will stop it"
        return CancellationResult(
            job_id=job_id, status=status, previous_state=before.state, message=told
        )

    async def cancel_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        reason: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> BatchCancellationResult:
        """Cancel many jobs, by id or by filter; a dry run only counts."""
        if (job_ids is None) == (filter is None):
            told = "must be given, or filter, but not both"
            raise ValidationError([Fault("job_ids", "CONFLICT", told)])
        ids = list(job_ids) if job_ids is not None else await self._matching(filter or {})
        if dry_run:
            return await self._dry_run(ids)
        answers = [await self.cancel(i, reason=reason, force=force) for i in ids]
        done = (CancellationStatus.CANCELLED, CancellationStatus.CANCEL_REQUESTED)
        failed = tuple(a for a in answers if a.status is CancellationStatus.NOT_FOUND)
        return BatchCancellationResult(
            requested=len(ids),
            cancelled=sum(a.status in done for a in answers),
            skipped=sum(a.status is CancellationStatus.ALREADY_COMPLETE for a in answers),
            failed=len(failed),
            errors=failed,
        )

    async def failure(self, job_id: str, *, include_all_attempts: bool = True) -> FailureDetails:
        """Return how a job failed, attempt by attempt."""
        job = await self.job(job_id)
        return await self._failure(job, all_attempts=include_all_attempts)

    async def failures(self, wanted: FailureFilter) -> FailureSearchResult:
        """Return one page of failed jobs with what they failed of."""
        page = await self.store.failures(failure_search(wanted))
        return FailureSearchResult(
            failures=tuple([await self._failure(job, all_attempts=False) for job in page.jobs]),
            total_count=page.total,
            next_cursor=page.next_cursor,
            by_category=page.by_category,
            by_code=page.by_code,
            by_type=page.by_type,
        )

    async def retry(
        self,
        job_id: str,
        *,
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
    ) -> RetryResult:
        """Give a failed job another chance, by an operator's word."""
        wait = _span("delay", delay)
        level = None if priority is None else _priority(priority)

        def decide(job: Job) -> Job:
            if job.state not in (State.FAILED, State.DEAD_LETTER):
                return job
            return lifecycle.reopened(
                job,
                now=self.store.now(),
                reset_attempts=reset_attempts,
                priority=level,
                delay=wait,
            )

        before, after = await self._decide(job_id, decide)
        if before is None or after is None:
            return RetryResult(job_id=job_id, status=RetryStatus.NOT_FOUND)
        if after is before:
            return RetryResult(
                job_id=job_id, status=RetryStatus.NOT_RETRIABLE, new_state=before.state
            )
        return RetryResult(
            job_id=job_id,
            status=RetryStatus.QUEUED,
            new_state=after.state,
            scheduled_for=after.due_at or after.scheduled_at,
        )

    async def release(self, job_id: str) -> ReleaseResult:
        """Let a held job go."""
        before, after = await self._decide(
            job_id, lambda job: lifecycle.released(job, now=self.store.now())
        )
        if before is None or after is None:
            return ReleaseResult(job_id=job_id, status=ReleaseStatus.NOT_FOUND)
        status = ReleaseStatus.NOT_HELD if after is before else ReleaseStatus.RELEASED
        if status is ReleaseStatus.RELEASED and before.depends_on:
            await release_dependents(self.store)
            after = await self.job(job_id)
        return ReleaseResult(job_id=job_id, status=status, new_state=after.state)

    async def delete(self, job_id: str) -> DeletionResult:
        """Delete an ended job that no live job depends on."""
        (job,) = await self.store.get([job_id])
        if job is None:
            status = DeletionStatus.NOT_FOUND
        elif job.state not in TERMINAL:
            status = DeletionStatus.NOT_ENDED
        elif (await self.store.delete([job_id]))[0]:
            status = DeletionStatus.DELETED
        else:
            status = DeletionStatus.NEEDED
        return DeletionResult(job_id=job_id, status=status)

    async def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncIterator[JobEvent]:
        """Yield what happens to jobs, from now or after a cursor; ends only without ``follow``."""
        cursor = after
        if cursor is None and follow:
            cursor = (await self.store.events(None, 0, timedelta(0))).cursor
        wait = timedelta(seconds=LONGEST_LOOK) if follow else timedelta(0)
        while True:
            page = await self.store.events(cursor, 500, wait)
            for event in page.events:
                yield event
            cursor = page.cursor
            if not page.events and not follow:
                return

    async def logs(self, job_id: str) -> list[LogLine]:
        """Return the lines a job's handler logged."""
        await self.job(job_id)
        return await self.store.logs(job_id)

    async def queues(self) -> list[QueueInfo]:
        """Return every queue with its settings and counts."""
        return await self.store.queues()

    async def pause(self, queue: str) -> None:
        """Let no more jobs of a queue start."""
        await self.store.configure(queue, {"paused": True})

    async def resume(self, queue: str) -> None:
        """Let jobs of a queue start again."""
        await self.store.configure(queue, {"paused": False})

    async def explain(self, job_id: str) -> Explanation:
        """Say why a job is not running now."""
        return await explain(self.store, await self.job(job_id))

    async def job(self, job_id: str) -> Job:
        """Return the job itself; NotFoundError when there is none."""
        (job,) = await self.store.get([job_id])
        if job is None:
            raise NotFoundError(job_id)
        return job

    async def _decide(
        self, job_id: str, decide: Callable[[Job], Job]
    ) -> tuple[Job | None, Job | None]:
        """Decide on a job and write it; when it moved meanwhile, decide again on what it became."""
        (before,) = await self.store.get([job_id])
        for _ in range(DECISIONS):
            if before is None:
                return None, None
            after = decide(before)
            if after is before:
                return before, after
            (answer,) = await self.store.swap([Change(before, after)])
            if answer.written:
                if answer.ripe:
                    await release_dependents(self.store)
                return before, after
            before = answer.job
        raise RuntimeError(f"job {job_id} keeps changing")  # pragma: no cover

    async def _matching(self, wanted: JobFilter) -> list[str]:
        ids: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.store.find(job_search({**wanted, "cursor": cursor, "limit": 1000}))
            ids.extend(job.id for job in page.jobs)
            cursor = page.next_cursor
            if cursor is None:
                return ids

    async def _dry_run(self, ids: Sequence[str]) -> BatchCancellationResult:
        jobs = await self.store.get(ids)
        missing = [i for i, job in zip(ids, jobs, strict=True) if job is None]
        ended = sum(job is not None and job.state in TERMINAL for job in jobs)
        errors = tuple(
            CancellationResult(job_id=i, status=CancellationStatus.NOT_FOUND) for i in missing
        )
        return BatchCancellationResult(
            requested=len(ids),
            cancelled=len(ids) - ended - len(missing),
            skipped=ended,
            failed=len(missing),
            errors=errors,
            dry_run=True,
        )

    async def _failure(self, job: Job, *, all_attempts: bool) -> FailureDetails:
        history = (await self.store.history([job.id]))[0] if all_attempts else []
        return FailureDetails(
            job_id=job.id,
            type=job.type,
            queue=job.queue,
            final_state=job.state,
            total_attempts=job.attempt,
            failure=job.failure,
            attempts=tuple(attempt_info(a) for a in attempts(job.id, history)),
        )

    async def _described(self, results: Sequence[SubmissionResult]) -> list[SubmissionResult]:
        """Fill in what is known of the jobs that duplicates stand for."""
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


async def _any_of(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _span(field: str, value: Span) -> timedelta:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValidationError([Fault(field, "INVALID_DURATION", str(error))]) from None


def _priority(value: Priority | str | int) -> int:
    try:
        return int(Priority[value]) if isinstance(value, str) else int(Priority(value))
    except (KeyError, ValueError):
        levels = ", ".join(p.name for p in Priority)
        told = f"must be one of {levels}, got {value!r:.60}"
        raise ValidationError([Fault("priority", "INVALID", told)]) from None


__all__ = ["Operations"]
