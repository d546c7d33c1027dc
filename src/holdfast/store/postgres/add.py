"""Adding jobs: which are new, which job holds a key, which waits for which.

Runs on a connection of the store, or on the caller's own inside the caller's transaction. Nothing
is written before every job is judged, so nothing must be rolled back.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from holdfast.errors import StaleLeaseError
from holdfast.model.job import DedupeKey, Job, State
from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.postgres.arrays import Blobs, Documents, Longs, Moments, Texts
from holdfast.store.postgres.caller import caller_session, notify_on_commit
from holdfast.store.postgres.connection import StatementRunner
from holdfast.store.postgres.errors import LockedError
from holdfast.store.postgres.links import (
    Parents,
    add_pending,
    link,
    lock_parents,
    read_parents,
)
from holdfast.store.postgres.params import add_one_params, add_params, literal
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.rows import document
from holdfast.store.postgres.state import StoreState
from holdfast.store.postgres.swap import write as write_changes
from holdfast.store.postgres.wake import arrivals_in, arrivals_of
from holdfast.store.values import Added, AddStatus, Change, Fence, JobExport

Key = tuple[str, str]
KEY_TIMEOUT = "50ms"
"""How long a submission waits for a key that another one, perhaps a caller's, is taking."""
BUSY_KEYS_AT_ONCE = 4
"""How many keys are tried at a time, after one of them blocked the others."""


class Holder(msgspec.Struct, frozen=True):
    """The job that has a key, and until when."""

    digest: str
    job_id: str
    expires_at: datetime | None
    deleted: bool = False


async def add(
    state: StoreState,
    jobs: Sequence[Job],
    *,
    atomic: bool,
    fence: Fence | None,
    connection: object,
) -> list[Added]:
    """Write new jobs; see ``Store.add`` and ``TransactionalStore.add``."""
    if connection is not None:
        session = caller_session(connection, state.settings.schema)
        await notify_on_commit(state, session, jobs)
        return await _write(
            session, jobs, atomic=atomic, fence=fence, now=state.now(), is_own=False
        )
    await state.refresh()  # a process that only submits calls nothing else
    if fence is None and _is_plain(jobs):
        added = await _write_plain(state.pool, jobs)
        state.wake.notify(arrivals_of(jobs))
        return added
    if fence is None and not atomic:
        added = await _write_each(state.pool, jobs, state.now())
    else:
        added = await state.pool.atomically(
            lambda session: _write(session, jobs, atomic=atomic, fence=fence, now=state.now())
        )
    # Also for jobs that wait for others: claims skipped those while they were locked.
    state.wake.notify(arrivals_in(jobs))
    return added


async def adopt(state: StoreState, exports: Sequence[JobExport]) -> list[bool]:
    """Write jobs of another store; see ``PortableStore.adopt``."""
    written = await state.pool.atomically(
        lambda session: _write_exports(session, exports, state.now())
    )
    state.wake.notify(arrivals_of([export.job for export in exports]))
    new = dict.fromkeys(written, True)
    return [new.pop(export.job.id, False) for export in exports]


async def _write(
    session: StatementRunner,
    jobs: Sequence[Job],
    *,
    atomic: bool,
    fence: Fence | None,
    now: datetime,
    is_own: bool = True,
) -> list[Added]:
    """Write jobs inside a transaction.

    One that is not the store's own may stay open for long: it locks no jobs outside of it, and
    leaves pending links to them, see ``links``.
    """
    if fence is not None and not await session.run(
        "holder", {"id": fence.job_id, "token": fence.token}
    ):
        raise StaleLeaseError(fence.job_id)
    if _is_plain(jobs):
        return await _write_plain(session, jobs)
    plan = await _plan(session, jobs, now, is_own=is_own)
    answers = [plan.judge(job) for job in jobs]
    refused = (AddStatus.CONFLICT, AddStatus.MISSING)
    if atomic and any(answer.status in refused for answer in answers):
        await _release(session, plan.locked)
        return [_aborted(answer) for answer in answers]
    fresh = [replace(job, depends_on=plan.alias(job)) for job in jobs if plan.is_new(job)]
    if fresh:
        await session.run("add", add_params(fresh))
    await _take(session, fresh)
    await _release(session, plan.locked)
    has_dependents = await _link(session, fresh, plan.parents)
    return [replace(a, has_dependents=True) if a.job_id in has_dependents else a for a in answers]


def _is_plain(jobs: Iterable[Job]) -> bool:
    """Whether jobs have no key, wait for nothing and were not spawned by another job."""
    for job in jobs:  # noqa: SIM110  # most calls add one job: any() costs more than this
        if job.dedupe or job.depends_on or job.spawned_by:
            return False
    return True


async def _write_plain(session: StatementRunner, jobs: Sequence[Job]) -> list[Added]:
    """Write plain jobs in a single statement."""
    if len(jobs) == 1:
        await session.run("add_one", add_one_params(jobs[0]))
    elif jobs:
        unique = list({job.id: job for job in reversed(jobs)}.values())[::-1]
        await session.run("add", add_params(unique))
    return [Added(AddStatus.ACCEPTED, job.id) for job in jobs]


async def _write_each(pool: Pool, jobs: Sequence[Job], now: datetime) -> list[Added]:
    """Write each job on its own; one whose key is busy does not block the others."""
    try:
        return await pool.atomically(
            lambda session: _write(session, jobs, atomic=False, fence=None, now=now)
        )
    except LockedError:
        if any(job.depends_on for job in jobs):  # perhaps on each other
            raise
    groups: defaultdict[Key | None, list[int]] = defaultdict(list)
    for n, job in enumerate(jobs):
        groups[_key(job.dedupe) if job.dedupe else None].append(n)
    if len(groups) == 1:
        return [Added(AddStatus.BUSY, job.id) for job in jobs]
    slots = asyncio.Semaphore(BUSY_KEYS_AT_ONCE)

    async def write_group(group: Sequence[int]) -> dict[int, Added]:
        async with slots:
            added = await _write_each(pool, [jobs[n] for n in group], now)
        return dict(zip(group, added, strict=True))

    parts = await asyncio.gather(*map(write_group, groups.values()))
    answers = {n: answer for part in parts for n, answer in part.items()}
    return [answers[n] for n in range(len(jobs))]


class _PostgresAdd:
    """Judges the jobs of one call from everything that is stored about them."""

    def __init__(
        self,
        known: set[str],
        locked: Sequence[Key],
        holders: Mapping[Key, Holder],
        parents: Parents,
    ) -> None:
        self._known = known
        self.locked = locked
        self._holders = dict(holders)
        self.parents = parents
        self._aliases: dict[str, str] = {}
        self._new: set[str] = set()

    def judge(self, job: Job) -> Added:
        if job.id in self._known or job.id in self._new:
            return Added(AddStatus.ACCEPTED, job.id)
        if job.dedupe is not None and (holder := self._holders.get(_key(job.dedupe))):
            if holder.job_id == job.id:  # a repeat of a job that was deleted meanwhile
                return Added(AddStatus.ACCEPTED, job.id)
            if holder.digest != job.dedupe.digest:
                return Added(AddStatus.CONFLICT, holder.job_id, deleted=holder.deleted)
            self._aliases[job.id] = holder.job_id
            return Added(AddStatus.DUPLICATE, holder.job_id, deleted=holder.deleted)
        missing = tuple(
            p for p in self.alias(job) if not (p in self.parents.states or p in self._new)
        )
        if missing:
            return Added(AddStatus.MISSING, job.id, missing=missing)
        self._new.add(job.id)
        if (dedupe := job.dedupe) is not None:
            self._holders[_key(dedupe)] = Holder(dedupe.digest, job.id, dedupe.expires_at)
        return Added(AddStatus.ACCEPTED, job.id)

    def alias(self, job: Job) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._aliases.get(p, p) for p in job.depends_on))

    def is_new(self, job: Job) -> bool:
        """Whether this job is to be written; true once, even if it is in the call twice."""
        fresh = job.id in self._new
        self._new.discard(job.id)
        return fresh


async def _plan(
    session: StatementRunner, jobs: Sequence[Job], now: datetime, *, is_own: bool
) -> _PostgresAdd:
    known = {id_ for (id_,) in await session.run("known", {"id": Texts([j.id for j in jobs])})}
    dedupes = {job.id: _key(job.dedupe) for job in jobs if job.dedupe and job.id not in known}
    keys = sorted(set(dedupes.values()))
    holders = await _holders(session, keys, now, KEY_TIMEOUT if is_own else None)
    named = {p for job in jobs for p in job.depends_on}
    twins = (dedupes[p] for p in named & dedupes.keys())
    named |= {holders[key].job_id for key in twins if key in holders}
    parents = await (lock_parents if is_own else read_parents)(session, jobs, named)
    return _PostgresAdd(known, keys, holders, parents)


async def _holders(
    session: StatementRunner, keys: Sequence[Key], now: datetime, timeout: str | None
) -> dict[Key, Holder]:
    if not keys:
        return {}
    if timeout:
        await session.run("lock_timeout", {"timeout": timeout})
    rows = await session.run("keys_lock", {**_key_columns(keys), "now": now})
    if timeout:
        await session.run("lock_timeout", {"timeout": None})
    return {
        (scope, key): Holder(digest, job_id, expires_at, deleted)
        for scope, key, digest, job_id, expires_at, deleted in rows
        if job_id is not None and (expires_at is None or expires_at > now)
    }


async def _take(session: StatementRunner, fresh: Sequence[Job]) -> None:
    taken = [(job.id, job.dedupe) for job in fresh if job.dedupe is not None]
    if taken:
        await session.run(
            "keys_take",
            {
                **_key_columns([_key(dedupe) for _, dedupe in taken]),
                "digest": Texts([dedupe.digest for _, dedupe in taken]),
                "job_id": Texts([id_ for id_, _ in taken]),
                "expires_at": Moments([dedupe.expires_at for _, dedupe in taken]),
            },
        )


async def _release(session: StatementRunner, locked: Sequence[Key]) -> None:
    if locked:
        await session.run("keys_release", _key_columns(locked))


async def _link(session: StatementRunner, fresh: Sequence[Job], parents: Parents) -> set[str]:
    """Write links; return the new jobs of which a dependency has already ended."""
    outside = {job.id for job in fresh if not parents.outside.isdisjoint(job.depends_on)}
    if outside:
        await add_pending(session, [job for job in fresh if job.id in outside], parents)
    return await link(session, [job for job in fresh if job.id not in outside], parents.states)


def _aborted(answer: Added) -> Added:
    if answer.status is AddStatus.ACCEPTED:
        return replace(answer, status=AddStatus.ABORTED)
    return answer


def _key(dedupe: DedupeKey) -> Key:
    return dedupe.scope, dedupe.key


def _key_columns(keys: Sequence[Key]) -> dict[str, object]:
    return {"scope": Texts([scope for scope, _ in keys]), "key": Texts([key for _, key in keys])}


async def _write_exports(
    session: StatementRunner, exports: Sequence[JobExport], now: datetime
) -> set[str]:
    """Write jobs as they were exported; return the ids of those that are new."""
    known = await _known(session, [export.job.id for export in exports])
    fresh = {e.job.id: e for e in exports if e.job.id not in known}
    stored = await _known(session, [p for e in fresh.values() for p in e.job.depends_on])
    jobs = [_as_submitted(export, stored | fresh.keys()) for export in fresh.values()]
    added = await _write(session, jobs, atomic=False, fence=None, now=now)
    written = {a.job_id for a in added if a.status is AddStatus.ACCEPTED} & fresh.keys()
    changes = [_to_exported(job, fresh[job.id]) for job in jobs if job.id in written]
    if changes:
        await write_changes(session, list(enumerate(changes)), parents=True, measured=False)
        await session.run("adopt", _rest([fresh[change.after.id] for change in changes]))
        again = await session.run("adopt_again", {"id": Texts(sorted(written))})
        if again:
            await session.run("adopt_waiting", {"child": Longs([child for (child,) in again])})
    return written


async def _known(session: StatementRunner, ids: Sequence[str]) -> set[str]:
    return {id_ for (id_,) in await session.run("known", {"id": Texts(ids)})} if ids else set()


def _as_submitted(export: JobExport, stored: set[str]) -> Job:
    """Return the job as it was submitted, with those of its dependencies that are stored."""
    job = export.job
    return replace(
        job,
        state=State.PENDING,
        revision=-1,
        attempt=0,
        lease=None,
        due_at=None,
        scheduled_at=None,
        depends_on=tuple(parent for parent in job.depends_on if parent in stored),
        trail=export.history[:1],
    )


def _to_exported(submitted: Job, export: JobExport) -> Change:
    return Change(submitted, replace(export.job, trail=export.history[1:]))


def _rest(exports: Sequence[JobExport]) -> dict[str, object]:
    jobs = [export.job for export in exports]
    lines = [(e.job.id, line) for e in exports for line in e.logs[-MAX_LOG_LINES:]]
    return {
        "id": Texts([job.id for job in jobs]),
        "progress": Documents([document(job.progress) for job in jobs]),
        "checkpoint": Blobs([job.checkpoint for job in jobs]),
        "depends_on": Texts([literal(job.depends_on) for job in jobs]),
        "line_job": Texts([job_id for job_id, _ in lines]),
        "line": Documents([document(line) for _, line in lines]),
    }
