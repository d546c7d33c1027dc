"""Operations on many jobs at once: cancel, retry and delete, by ids or by filter.

A filter selects all jobs that match. ``as_of`` leaves out those that changed after an instant, so
that the jobs an operator saw are the jobs that change. A dry run only counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.errors import Fault, ValidationError
from holdfast.model import lifecycle
from holdfast.model.dependencies import Node, order
from holdfast.model.job import TERMINAL, Job, Priority
from holdfast.model.payload import clean
from holdfast.model.results import (
    BatchCancellationResult,
    BatchDeletionResult,
    BatchRetryResult,
    CancellationResult,
    CancellationStatus,
    DeletionResult,
    DeletionStatus,
    RetryResult,
    RetryStatus,
)
from holdfast.model.times import Moment, Span, parse_timestamp
from holdfast.model.validation import MAX_KEY
from holdfast.operations.changes import Changes, retry_decision
from holdfast.operations.filters import JobFilter, job_search, must_select_once
from holdfast.operations.matching import find_matching
from holdfast.store import Page

PAGE = 500

OF_PAGES = ("limit", "cursor", "order")
"""Filters that select a page of a search. Many jobs change together, without pages."""

DecideOne = Callable[[Job, datetime], Job]


class _Outcome(NamedTuple):
    """How many jobs changed, how many did not, and which ids are unknown."""

    changed: int
    skipped: int
    missing: tuple[str, ...]


class BatchChanges(Changes):
    """Operations that change many stored jobs."""

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
        """Cancel many jobs; those that have ended are skipped."""
        until = _instant(as_of)
        reason = clean(reason, MAX_KEY)

        def decide(job: Job, now: datetime) -> Job:
            return lifecycle.cancel_requested(job, reason=reason, force=force, now=now)

        ids = await self._selected(job_ids, filter)
        outcome = await self._change_many(ids, _unless_newer(decide, until), dry_run=dry_run)
        status = CancellationStatus.NOT_FOUND
        return BatchCancellationResult(
            requested=len(ids),
            cancelled=outcome.changed,
            skipped=outcome.skipped,
            failed=len(outcome.missing),
            errors=tuple(CancellationResult(job_id=i, status=status) for i in outcome.missing),
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
        """Run many FAILED and DEAD_LETTER jobs again, dependencies first; others are skipped."""
        until = _instant(as_of)
        decide = retry_decision(reset_attempts=reset_attempts, priority=priority, delay=delay)
        ids = await self._selected(job_ids, filter)
        outcome = await self._change_many(
            await self._dependencies_first(ids), _unless_newer(decide, until), dry_run=dry_run
        )
        status = RetryStatus.NOT_FOUND
        return BatchRetryResult(
            requested=len(ids),
            retried=outcome.changed,
            skipped=outcome.skipped,
            failed=len(outcome.missing),
            errors=tuple(RetryResult(job_id=i, status=status) for i in outcome.missing),
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
        """Delete many ended jobs; those that run or wait, or that a live job needs, are skipped.

        A dry run counts every ended job, also those that a live job needs.
        """
        until = _instant(as_of)
        ids = await self._selected(job_ids, filter)
        outcome = await self._delete_many(ids, until, dry_run=dry_run)
        status = DeletionStatus.NOT_FOUND
        return BatchDeletionResult(
            requested=len(ids),
            deleted=outcome.changed,
            skipped=outcome.skipped,
            failed=len(outcome.missing),
            errors=tuple(DeletionResult(job_id=i, status=status) for i in outcome.missing),
            dry_run=dry_run,
        )

    async def _selected(self, job_ids: Sequence[str] | None, wanted: JobFilter | None) -> list[str]:
        """Return the ids to change: those given, or of all jobs that match."""
        must_select_once(job_ids, wanted, "job_ids")
        if wanted is None:
            return list(job_ids or ())
        check_batch_filter(wanted)
        ids: list[str] = []
        cursor: str | None = None
        while True:
            page = await self._matching(wanted, cursor)
            ids.extend(job.id for job in page.jobs)
            cursor = page.next_cursor
            if cursor is None:
                return ids

    async def _matching(self, wanted: JobFilter, cursor: str | None) -> Page:
        search = job_search({**wanted, "cursor": cursor, "limit": 1000})
        return await find_matching(self.store, replace(search, most_bytes=0), wanted)

    async def _dependencies_first(self, ids: Sequence[str]) -> list[str]:
        """Sort jobs so that a dependency is retried before the job that waits for it."""
        nodes: list[Node] = []
        for page in _pages(ids):
            for job_id, job in zip(page, await self.store.get(page), strict=True):
                nodes.append(Node(job_id, job.depends_on if job else ()))
        return order(nodes)[0]

    async def _change_many(
        self, ids: Sequence[str], decide: DecideOne, *, dry_run: bool
    ) -> _Outcome:
        changed, missing = 0, list[str]()
        for page in _pages(ids):
            if dry_run:
                now, jobs = self.store.now(), await self.store.get(page)
                decided = [(job, job and decide(job, now)) for job in jobs]
            else:
                decided = await self._decide_all(page, decide)
            missing += [i for i, (job, _) in zip(page, decided, strict=True) if job is None]
            changed += sum(after is not before for before, after in decided)
        return _Outcome(changed, len(ids) - changed - len(missing), tuple(missing))

    async def _delete_many(
        self, ids: Sequence[str], until: datetime | None, *, dry_run: bool
    ) -> _Outcome:
        changed, missing = 0, list[str]()
        for page in _pages(ids):
            jobs = await self.store.get(page)
            missing += [i for i, job in zip(page, jobs, strict=True) if job is None]
            ended = [job.id for job in jobs if job and _may_delete(job, until)]
            changed += len(ended) if dry_run else sum(await self.store.delete(ended))
        return _Outcome(changed, len(ids) - changed - len(missing), tuple(missing))


def check_batch_filter(wanted: JobFilter) -> None:
    """Refuse what selects a page: it would be ignored, and more jobs would change than seen."""
    faults = [
        Fault(
            f"filter.{name}",
            "UNSUPPORTED",
            "must not be given: every job that matches is changed. Narrow the filter, give as_of,"
            " or give job_ids",
        )
        for name in OF_PAGES
        if wanted.get(name) is not None
    ]
    if faults:
        raise ValidationError(faults)


def _unless_newer(decide: DecideOne, until: datetime | None) -> DecideOne:
    if until is None:
        return decide
    return lambda job, now: job if job.updated_at > until else decide(job, now)


def _may_delete(job: Job, until: datetime | None) -> bool:
    return job.state in TERMINAL and (until is None or job.updated_at <= until)


def _instant(as_of: Moment | None) -> datetime | None:
    if as_of is None:
        return None
    try:
        return parse_timestamp(as_of)
    except ValueError as error:
        raise ValidationError([Fault("as_of", "INVALID_TIMESTAMP", str(error))]) from None


def _pages(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(ids), PAGE):
        yield ids[first : first + PAGE]
