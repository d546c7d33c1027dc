"""Reads every job of a store, page by page, while workers may keep running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.model.job import DependencyKind, Job, Transition
from holdfast.operations.workers import workers
from holdfast.runtime.ahead import ahead
from holdfast.store import Order, Search, Store
from holdfast.verify.checker import GRACE, ORDER_SLACK, Checker, Report
from holdfast.verify.rules import matches_history, waited_for_children
from holdfast.verify.witness import Witness

PAGE = 500
ROUNDS = 8
"""How often a job that keeps changing is read again."""

OnJob = Callable[[Job, Sequence[Transition]], None]
"""Called with every job that was read, and its history."""

JobRead = tuple[Job, list[Transition]]

TURN = 25
"""Jobs that are checked before other tasks get a turn."""


class JobsRead(NamedTuple):
    """A page of jobs."""

    now: datetime
    size: int
    """How many jobs the page had."""
    jobs: Mapping[str, JobRead]
    """Those that matched their history, in the order of the page."""


async def verify(
    store: Store,
    witness: Witness | None = None,
    *,
    on_job: OnJob | None = None,
    order_slack: timedelta = ORDER_SLACK,
) -> Report:
    """Check every job in a store against its audit records; workers may run meanwhile."""
    checker = Checker(witness, has_workers=await _has_workers(store), order_slack=order_slack)
    pages = _pages(store)
    async for page in ahead(pages) if store.capabilities.reads_elsewhere else pages:
        await _check(store, checker, page, on_job)
    return checker.finish()


async def _pages(store: Store) -> AsyncGenerator[JobsRead, None]:
    """Yield all jobs in order of submission, with their histories, page by page."""
    cursor: str | None = None
    while True:
        page = await store.find(Search(order=Order.CREATED_ASC, cursor=cursor, limit=PAGE))
        now = store.now()
        yield JobsRead(now, len(page.jobs), await _read(store, page.jobs))
        cursor = page.next_cursor
        if cursor is None:
            return


async def _has_workers(store: Store) -> bool:
    """Whether a worker has run long enough to do everything that is due."""
    long_ago = store.now() - GRACE
    return any(worker.started_at < long_ago for worker in await workers(store))


async def _check(store: Store, checker: Checker, page: JobsRead, on_job: OnJob | None) -> None:
    read = page.jobs
    checker.moving += page.size - len(read)
    parents = await _parents(store, read)
    for number, (job, history) in enumerate(read.values()):
        if number % TURN == 0:
            await asyncio.sleep(0)  # the next page is read meanwhile
        checker.check(job, history, parents.get(job.id, {}), now=page.now)
        if on_job is not None:
            on_job(job, history)


async def _read(store: Store, jobs: Sequence[Job]) -> dict[str, JobRead]:
    """Read histories, and read a job that changed meanwhile again until both match.

    They never match where the record is wrong, so two equal reads are accepted as they are.
    """
    done: dict[str, JobRead] = {}
    current = {job.id: job for job in jobs}
    before: dict[str, JobRead] = {}
    for _ in range(ROUNDS):
        histories = await store.history(list(current))
        read = dict(zip(current, zip(current.values(), histories, strict=True), strict=True))
        done |= {
            job_id: one
            for job_id, one in read.items()
            if matches_history(*one) or before.get(job_id) == one
        }
        before = {job_id: one for job_id, one in read.items() if job_id not in done}
        if not before:
            break
        current = {job.id: job for job in await store.get(list(before)) if job is not None}
    return {job.id: done[job.id] for job in jobs if job.id in done}


async def _parents(
    store: Store, read: Mapping[str, JobRead]
) -> dict[str, dict[str, list[Transition]]]:
    """Return the histories of each job's dependencies, where they still exist."""
    named: dict[str, Sequence[str]] = {}
    for job, history in read.values():
        if waited_for_children(history):
            named[job.id] = await store.children(job.id)
        elif job.depends_on:
            spawned_too = job.dependency_kind is DependencyKind.FAN_IN
            named[job.id] = await store.parents(job.id) if spawned_too else job.depends_on
    missing = list({p for ps in named.values() for p in ps if p not in read})
    known = {job_id: history for job_id, (_, history) in read.items()}
    for start in range(0, len(missing), PAGE):
        ids = missing[start : start + PAGE]
        known.update(zip(ids, await store.history(ids), strict=True))
    return {
        job_id: {parent: known[parent] for parent in parents if known.get(parent)}
        for job_id, parents in named.items()
    }
