"""Maintenance: promote due jobs, find the overdue, prune, delete, hold named locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial

from holdfast.model.job import Job, State
from holdfast.model.measures import minute_of
from holdfast.model.policy import Retention
from holdfast.store.postgres.arrays import Longs, Moments, Texts
from holdfast.store.postgres.connection import PostgresSession
from holdfast.store.postgres.links import link_pending
from holdfast.store.postgres.rows import WIDTH
from holdfast.store.postgres.state import StoreState
from holdfast.store.values import Dependent, Promoted

MEASURES_KEPT = timedelta(days=7)
AGE_BATCH = 10_000
FOLD_BATCH = 20_000
SWEEP_BATCH = 1_000
LINK_BATCH = 1_000
TRIM_BATCH = 5_000


async def promote(state: StoreState, limit: int) -> Promoted:
    """Make due jobs ready; see ``Store.promote``."""
    override = state.clock.override
    state.wake.promotes()
    rows = await state.run("promote", {"limit": limit, "now": override})
    if state.ageing.is_due:
        aged = state.run("age", {"limit": AGE_BATCH, "now": override})
        if await state.ageing.run(aged):
            state.positions.reset()
    ((later, has_pending),) = await state.run("next_due", {})
    state.wake.notify([(queue, type_, False) for queue, type_ in rows])
    await _fold(state)
    has_dependents = await _link_all_pending(state) if limit and has_pending else False
    return Promoted(len(rows), later, has_dependents)


async def _link_all_pending(state: StoreState) -> bool:
    """Write the pending links; return whether the verdict on a dependent may be due soon."""
    found: list[bool] = []
    after: int | None = 0
    while after is not None:
        batch = partial(link_pending, after=after, limit=LINK_BATCH)
        has_dependents, after = await state.pool.atomically(batch)
        found.append(has_dependents)
    return len(found) == 1 or any(found)  # no rows at all: another process is linking them now


async def overdue(state: StoreState, limit: int) -> list[Job]:
    """Return jobs whose lease or lifetime is over; see ``Store.overdue``."""
    if not limit:
        return []  # a scan of no rows must not move the lease position
    begun, now = state.ticks(), state.now()
    since = state.leases.start(begun)
    params = {"limit": limit, "leased": since, "now": state.clock.override}
    rows = sorted(await state.run("overdue", params), key=lambda row: row[-2:])
    if rows and rows[-1][-2] > state.now():  # the server's clock was set forward
        await state.check_clock()
    jobs = state.jobs([row for row in rows if row[0] is not None])
    live = {job.id for job in jobs if job.state is not State.RUNNING}
    ends = [row[-2] for row in rows if row[0] not in live]
    if len(rows) >= limit:
        ends.append(rows[-1][-2])  # later ones were not read
    state.leases.record(min(ends, default=None), now)
    if since is None:
        ended = state.ticks()
        state.leases.record_full_scan(ended, ended - begun)
    return jobs


async def dependents(state: StoreState, limit: int) -> list[Dependent]:
    """Return waiting jobs with a verdict due; see ``Store.dependents``."""
    await state.run("sweep_waiting", {"limit": SWEEP_BATCH})
    rows = await state.run("dependents", {"limit": limit})
    return [
        Dependent(job, tuple(zip(row[WIDTH], map(State, row[WIDTH + 1]), strict=True)))
        for job, row in zip(state.jobs(rows), rows, strict=True)
    ]


async def prune(state: StoreState, retention: Retention, limit: int) -> int:
    """Delete what is old enough; see ``Store.prune``."""
    now = state.now()
    spans = {
        State.COMPLETED: retention.completed,
        State.FAILED: retention.failed,
        State.DEAD_LETTER: retention.dead_letter,
        State.CANCELLED: retention.cancelled,
    }
    rules = [(ended, now - span) for ended, span in spans.items() if span is not None]
    params = {
        "state": Texts([ended for ended, _ in rules]),
        "before": Moments([before for _, before in rules]),
        "limit": limit,
    }
    deleted = await _delete(state, "prunable", params)
    await _trim(state, "trim_expired")
    await _trim(state, "trim_events")
    await state.run("trim_readings", {"before": minute_of(now - MEASURES_KEPT)})
    await _fold(state, at_once=True)
    return len(deleted)


async def delete(state: StoreState, ids: Sequence[str]) -> list[bool]:
    """Delete ended jobs; see ``Store.delete``."""
    deleted = await _delete(state, "deletable", {"id": Texts(ids)})
    first = {id_: n for n, id_ in reversed(list(enumerate(ids)))}
    return [id_ in deleted and first[id_] == n for n, id_ in enumerate(ids)]


async def lock(state: StoreState, name: str, holder: str, ttl: timedelta, data: bytes) -> bool:
    """Take or renew a named lock; see ``Store.lock``."""
    params = {
        "name": name,
        "holder": holder,
        "ttl": ttl.total_seconds(),
        "data": data,
        "now": state.clock.override,
    }
    return bool(await state.run("lock", params))


async def _delete(state: StoreState, choice: str, params: Mapping[str, object]) -> set[str]:
    """Delete the jobs that a statement chooses and locks; return their ids."""

    async def delete_chosen(session: PostgresSession) -> set[str]:
        chosen = [number for (number,) in await session.run(choice, params)]
        if not chosen:
            return set()
        rows = await session.run("delete", {"number": Longs(chosen), "kept": state.events_kept})
        return {id_ for (id_,) in rows}

    return await state.pool.atomically(delete_chosen)


async def _trim(state: StoreState, name: str) -> None:
    """Delete everything that has expired, in batches."""
    count = TRIM_BATCH
    while count == TRIM_BATCH:
        params = {"limit": TRIM_BATCH, "now": state.clock.override, "kept": state.events_kept}
        ((count,),) = await state.run(name, params)


async def _fold(state: StoreState, *, at_once: bool = False) -> None:
    """Sum up counters if that is due; sooner again when a whole batch was found."""
    if at_once or state.folding.is_due:
        ((count,),) = await state.folding.run(state.run("fold", {"limit": FOLD_BATCH}))
        if count == FOLD_BATCH:
            state.folding.continue_soon()
