"""Operations that move jobs: decide with the lifecycle, swap under the fence, look again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from holdfast import lifecycle
from holdfast.errors import Fault, NotFoundError, ValidationError
from holdfast.intake import MAX_KEY
from holdfast.job import TERMINAL, Job, Priority, State
from holdfast.payload import clean
from holdfast.releasing import release_dependents
from holdfast.results import (
    BatchCancellationResult,
    CancellationResult,
    CancellationStatus,
    DeletionResult,
    DeletionStatus,
    ReleaseResult,
    ReleaseStatus,
    RetryResult,
    RetryStatus,
)
from holdfast.searching import JobFilter, job_search
from holdfast.store import Change, Store
from holdfast.timing import Span, parse_duration

DECISIONS = 10
"""How often a decision is made again when the job moved meanwhile."""


class Changes:
    """What can be done to jobs that are already there."""

    def __init__(self, store: Store) -> None:
        self.store = store

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

    async def retry(
        self,
        job_id: str,
        *,
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
    ) -> RetryResult:
        """Give a failed job another chance, by an operator's word."""
        wait = read_span("delay", delay)
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


def read_span(field: str, value: Span) -> timedelta:
    """Read a duration given to an operation; ValidationError names the field."""
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


__all__ = ["Changes", "read_span"]
