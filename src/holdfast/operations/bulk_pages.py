"""Finds and changes the jobs of an operation on many, one page at a time.

A page that a crash interrupted is changed again: what was changed already is recognised, because
it changed after ``as_of``, and counts as done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.errors import StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.amendment import Amendment
from holdfast.model.bulk import APPLIES_TO, BulkAction, BulkCounts, BulkOperation, with_problems
from holdfast.model.job import TERMINAL, DamagedJob, Job, State
from holdfast.operations.batches import BatchChanges
from holdfast.operations.bulk_records import StoredBulk
from holdfast.operations.changes import DECISIONS, priority_level, retry_decision
from holdfast.operations.dependents import release_dependents
from holdfast.operations.filters import JobFilter, job_search
from holdfast.operations.matching import find_matching, narrowed
from holdfast.store import Change, Order, Page, Search
from holdfast.store.damage import described

PAGE = 500
TICK = timedelta(microseconds=1)

Result = bool | str
"""Of one job: changed, left alone, or why it could not be changed."""
DecideOne = Callable[[Job, datetime], Job]


class Found(NamedTuple):
    """The next jobs of an operation, and where the search continues."""

    ids: tuple[str, ...]
    cursor: str | None
    is_last: bool


def search_of(action: BulkAction, wanted: JobFilter) -> Search | None:
    """Return the search for the jobs that an action can change; None: there are none."""
    search = job_search(wanted)
    applies = APPLIES_TO[action]
    search = narrowed(search, wanted)
    states = tuple(state for state in State if state in applies)
    if search.states:
        states = tuple(state for state in states if state in search.states)
    if not states:
        return None
    return replace(search, states=states, order=Order.CREATED_ASC, cursor=None, most_bytes=0)


class BulkPages(BatchChanges):
    """The pages of operations over one store, or over the view of one namespace."""

    async def matching(self, search: Search, wanted: JobFilter) -> Page:
        """Return one page of jobs."""
        return await find_matching(self.store, search, wanted)

    async def following(self, stored: StoredBulk) -> Found:
        """Return the jobs after those that have been dealt with."""
        operation = stored.operation
        if operation.filter is None:
            first = int(stored.cursor or 0)
            end = first + PAGE
            return Found(stored.ids[first:end], str(end), end >= len(stored.ids))
        wanted: JobFilter = {**operation.filter}  # type: ignore[typeddict-item]  # checked at start
        search = search_of(operation.action, wanted)
        if search is None:
            return Found((), None, is_last=True)
        before = operation.as_of + TICK
        if search.created_before is not None:
            before = min(before, search.created_before)
        search = replace(search, created_before=before, cursor=stored.cursor, limit=PAGE)
        page = await self.matching(search, wanted)
        ids = tuple(job.id for job in page.jobs)
        return Found(ids, page.next_cursor, page.next_cursor is None)

    async def change(
        self, operation: BulkOperation, ids: Sequence[str], *, resumed: bool
    ) -> BulkCounts:
        """Change jobs, or count what would change; ``resumed``: some may have been changed."""
        try:
            results = await self._results(operation, ids, resumed=resumed)
        except StoreUnavailableError:
            raise
        except Exception:  # noqa: BLE001  # one job must not stop the others
            results = [await self._alone(operation, job_id, resumed=resumed) for job_id in ids]
        return with_problems(
            sum(result is True for result in results),
            sum(result is False for result in results),
            [(i, text) for i, text in zip(ids, results, strict=True) if isinstance(text, str)],
        )

    async def _alone(self, operation: BulkOperation, job_id: str, *, resumed: bool) -> Result:
        try:
            return (await self._results(operation, [job_id], resumed=resumed))[0]
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001  # reported with the operation
            return described(error)

    async def _results(
        self, operation: BulkOperation, ids: Sequence[str], *, resumed: bool
    ) -> list[Result]:
        before = await self.store.get(ids)
        match operation.action:
            case BulkAction.DELETE:
                changed = await self._delete_all(operation, before)
            case BulkAction.REPRIORITISE:
                changed = await self._amend_all(operation, before)
            case _:
                changed = await self._swap_all(operation, ids)
        return [
            _result(operation, job, resumed=resumed, changed=job_id in changed)
            for job_id, job in zip(ids, before, strict=True)
        ]

    async def _swap_all(self, operation: BulkOperation, ids: Sequence[str]) -> set[str]:
        decide = _unless_newer(_decision(operation), operation.as_of)
        if operation.action is BulkAction.RETRY:
            ids = await self._dependencies_first(ids)
        if operation.dry_run:
            now = self.store.now()
            jobs = [job for job in await self.store.get(ids) if job is not None]
            return {job.id for job in jobs if decide(job, now) is not job}
        decided = await self._decide_all(ids, decide)
        changed = [after for before, after in decided if after is not None and after is not before]
        if operation.action is BulkAction.RELEASE and any(job.depends_on for job in changed):
            await release_dependents(self.store)
        return {job.id for job in changed}

    async def _delete_all(self, operation: BulkOperation, jobs: Sequence[Job | None]) -> set[str]:
        ended = [
            job.id
            for job in jobs
            if job and job.state in TERMINAL and job.updated_at <= operation.as_of
        ]
        if operation.dry_run or not ended:
            return set(ended)
        gone = await self.store.delete(ended)
        return {job_id for job_id, deleted in zip(ended, gone, strict=True) if deleted}

    async def _amend_all(self, operation: BulkOperation, jobs: Sequence[Job | None]) -> set[str]:
        amendment = Amendment(priority=_level(operation))
        changed = set[str]()
        left: list[Job] = [job for job in jobs if job is not None]
        for _ in range(DECISIONS):
            changes = [
                Change(job, amendment.applied(job))
                for job in left
                if not isinstance(job, DamagedJob)
                and job.updated_at <= operation.as_of
                and job.priority != amendment.priority
                and amendment.refused(job) is None
            ]
            if operation.dry_run or not changes:
                return changed | {change.before.id for change in changes}
            answers = await self.store.amend(changes)
            changed |= {c.before.id for c, a in zip(changes, answers, strict=True) if a.written}
            left = [answer.job for answer in answers if not answer.written and answer.job]
        raise RuntimeError(f"jobs keep changing: {len(left)}")


def _decision(operation: BulkOperation) -> DecideOne:
    options = operation.options
    match operation.action:
        case BulkAction.CANCEL:
            reason, force = str(options.get("reason", "")), bool(options.get("force", False))
            return lambda job, now: lifecycle.cancel_requested(
                job, reason=reason, force=force, now=now
            )
        case BulkAction.RETRY:
            return retry_decision(
                reset_attempts=bool(options.get("reset_attempts", False)),
                priority=options.get("priority"),  # type: ignore[arg-type]  # checked here
                delay=options.get("delay", 0),  # type: ignore[arg-type]  # checked here
            )
        case _:
            return lambda job, now: lifecycle.released(job, now=now)


def _level(operation: BulkOperation) -> int:
    return priority_level(operation.options["priority"])  # type: ignore[arg-type]  # checked here


def _unless_newer(decide: DecideOne, as_of: datetime) -> DecideOne:
    def decided(job: Job, now: datetime) -> Job:
        if job.updated_at > as_of or isinstance(job, DamagedJob):
            return job
        return decide(job, now)

    return decided


def _result(operation: BulkOperation, job: Job | None, *, resumed: bool, changed: bool) -> Result:
    if changed:
        return True
    if job is None:
        if resumed and operation.action is BulkAction.DELETE:
            return True
        return "there is no such job" if operation.filter is None else False
    if isinstance(job, DamagedJob) and operation.action is not BulkAction.DELETE:
        return f"it cannot be read: {job.damage}"
    return resumed and not operation.dry_run and _was_changed(operation, job)


def _was_changed(operation: BulkOperation, job: Job) -> bool:
    """Whether a job of an interrupted page looks as if the operation had changed it."""
    match operation.action:
        case BulkAction.REPRIORITISE:
            return job.priority == _level(operation)
        case BulkAction.RELEASE:
            return not job.held
        case _:
            return job.updated_at > operation.as_of
