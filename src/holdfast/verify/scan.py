"""Reading everything a store knows, page by page, while workers go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from holdfast.model.job import DependencyKind, Job, Transition
from holdfast.operations.workers import workers
from holdfast.store import Order, Search, Store
from holdfast.verify.checker import GRACE, ON_ITS_WAY, Checker, Report
from holdfast.verify.rules import agree
from holdfast.verify.witness import Witness

PAGE = 500
ROUNDS = 8
"""How often a job that keeps moving is read again."""

Read = Callable[[Job, Sequence[Transition]], None]
"""Hears of every job that was read."""

Found = tuple[Job, list[Transition]]


async def verify(
    store: Store,
    witness: Witness | None = None,
    *,
    heard: Read | None = None,
    on_its_way: timedelta = ON_ITS_WAY,
) -> Report:
    """Judge every job in a store by its audit records; workers may run meanwhile."""
    checker = Checker(witness, tended=await _is_tended(store), on_its_way=on_its_way)
    cursor: str | None = None
    while True:
        page = await store.find(Search(order=Order.CREATED_ASC, cursor=cursor, limit=PAGE))
        await _judge(store, checker, page.jobs, heard)
        cursor = page.next_cursor
        if cursor is None:
            return checker.finish()


async def _is_tended(store: Store) -> bool:
    settled = store.now() - GRACE
    return any(worker.started_at < settled for worker in await workers(store))


async def _judge(store: Store, checker: Checker, jobs: Sequence[Job], heard: Read | None) -> None:
    now = store.now()
    read = await _read(store, jobs)
    checker.moving += len(jobs) - len(read)
    parents = await _parents(store, read)
    for found in (read[job.id] for job in jobs if job.id in read):
        checker.see(*found, parents.get(found[0].id, {}), now=now)
        if heard is not None:
            heard(*found)


async def _read(store: Store, jobs: Sequence[Job]) -> dict[str, Found]:
    """Read histories; a job that moved in between is read again, until both agree.

    They never will where the record is wrong: what is the same twice is taken as it is.
    """
    done: dict[str, Found] = {}
    current = {job.id: job for job in jobs}
    before: dict[str, Found] = {}
    for _ in range(ROUNDS):
        histories = await store.history(list(current))
        found = dict(zip(current, zip(current.values(), histories, strict=True), strict=True))
        done |= {id_: one for id_, one in found.items() if agree(*one) or before.get(id_) == one}
        before = {id_: one for id_, one in found.items() if id_ not in done}
        if not before:
            break
        current = {job.id: job for job in await store.get(list(before)) if job is not None}
    return done


async def _parents(
    store: Store, read: Mapping[str, Found]
) -> dict[str, dict[str, list[Transition]]]:
    """The histories of everything that each job waits for, where they still exist."""
    named: dict[str, Sequence[str]] = {}
    for job, _ in read.values():
        if job.depends_on:
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
