"""Writing new jobs: who is new, who holds a key, who waits for whom.

Everything runs on whatever connection it is given: one of ours, or the caller's own inside
the caller's transaction. Nothing is written before all is judged, so nothing is rolled back.
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
from holdfast.store.postgres.arrays import Blobs, Documents, Moments, Texts
from holdfast.store.postgres.connection import Statements
from holdfast.store.postgres.errors import LockedError
from holdfast.store.postgres.links import Parents, link, lock_parents, see_parents, tie
from holdfast.store.postgres.params import add_one_params, add_params, literal
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.rows import document
from holdfast.store.postgres.swap import swap
from holdfast.store.values import Added, AddStatus, Change, Fence, JobExport

Key = tuple[str, str]
PATIENCE = "50ms"
"""How long a submission waits for a key that another one is taking, which may be a caller's."""
ASIDE = 4
"""How many keys are tried at a time, after one of them kept the others waiting."""


class Holder(msgspec.Struct, frozen=True):
    """Who has a key, and until when."""

    digest: str
    job_id: str
    expires_at: datetime | None


async def add(
    session: Statements,
    jobs: Sequence[Job],
    *,
    atomic: bool,
    fence: Fence | None,
    now: datetime,
    is_ours: bool = True,
) -> list[Added]:
    """Write jobs as ``Store.add`` promises; the session is inside a transaction.

    One that is not ours may stay open for long: jobs outside of it are not locked, and joined
    to those that wait for them later, see ``linking``.
    """
    if fence is not None and not await session.run(
        "holder", {"id": fence.job_id, "token": fence.token}
    ):
        raise StaleLeaseError(fence.job_id)
    if is_plain(jobs):
        return await add_plain(session, jobs)
    plan = await _plan(session, jobs, now, is_ours=is_ours)
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


def is_plain(jobs: Iterable[Job]) -> bool:
    """Whether jobs have no key, wait for nothing and were spawned by nobody."""
    for job in jobs:  # noqa: SIM110  # most calls bring one job: any() would cost more than this
        if job.dedupe or job.depends_on or job.spawned_by:
            return False
    return True


async def add_plain(session: Statements, jobs: Sequence[Job]) -> list[Added]:
    """Write plain jobs: a single statement."""
    if len(jobs) == 1:
        await session.run("add_one", add_one_params(jobs[0]))
    elif jobs:
        unique = list({job.id: job for job in reversed(jobs)}.values())[::-1]
        await session.run("add", add_params(unique))
    return [Added(AddStatus.ACCEPTED, job.id) for job in jobs]


async def add_each(database: Pool, jobs: Sequence[Job], now: datetime) -> list[Added]:
    """Write jobs of which each stands alone; those whose key is busy keep no others waiting."""
    try:
        return await database.atomically(
            lambda session: add(session, jobs, atomic=False, fence=None, now=now)
        )
    except LockedError:
        if any(job.depends_on for job in jobs):  # perhaps on each other
            raise
    groups: defaultdict[Key | None, list[int]] = defaultdict(list)
    for n, job in enumerate(jobs):
        groups[_key(job.dedupe) if job.dedupe else None].append(n)
    if len(groups) == 1:
        return [Added(AddStatus.BUSY, job.id) for job in jobs]
    few = asyncio.Semaphore(ASIDE)

    async def apart(group: Sequence[int]) -> dict[int, Added]:
        async with few:
            added = await add_each(database, [jobs[n] for n in group], now)
        return dict(zip(group, added, strict=True))

    parts = await asyncio.gather(*map(apart, groups.values()))
    answers = {n: answer for part in parts for n, answer in part.items()}
    return [answers[n] for n in range(len(jobs))]


class _PostgresAdd:
    """Judges the jobs of one call, knowing all that is stored about them."""

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
            if holder.digest != job.dedupe.digest:
                return Added(AddStatus.CONFLICT, holder.job_id)
            self._aliases[job.id] = holder.job_id
            return Added(AddStatus.DUPLICATE, holder.job_id)
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
        """Whether this job is to be written; once only, should it stand in the call twice."""
        fresh = job.id in self._new
        self._new.discard(job.id)
        return fresh


async def _plan(
    session: Statements, jobs: Sequence[Job], now: datetime, *, is_ours: bool
) -> _PostgresAdd:
    known = {id_ for (id_,) in await session.run("known", {"id": Texts([j.id for j in jobs])})}
    dedupes = {job.id: _key(job.dedupe) for job in jobs if job.dedupe and job.id not in known}
    keys = sorted(set(dedupes.values()))
    holders = await _holders(session, keys, now, PATIENCE if is_ours else None)
    named = {p for job in jobs for p in job.depends_on}
    twins = (dedupes[p] for p in named & dedupes.keys())
    named |= {holders[key].job_id for key in twins if key in holders}
    parents = await (lock_parents if is_ours else see_parents)(session, jobs, named)
    return _PostgresAdd(known, keys, holders, parents)


async def _holders(
    session: Statements, keys: Sequence[Key], now: datetime, patience: str | None
) -> dict[Key, Holder]:
    if not keys:
        return {}
    if patience:
        await session.run("patience", {"longest": patience})
    rows = await session.run("keys_lock", {**_key_columns(keys), "now": now})
    if patience:
        await session.run("patience", {"longest": None})
    return {
        (scope, key): Holder(digest, job_id, expires_at)
        for scope, key, digest, job_id, expires_at in rows
        if job_id is not None and (expires_at is None or expires_at > now)
    }


async def _take(session: Statements, fresh: Sequence[Job]) -> None:
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


async def _release(session: Statements, locked: Sequence[Key]) -> None:
    if locked:
        await session.run("keys_release", _key_columns(locked))


async def _link(session: Statements, fresh: Sequence[Job], parents: Parents) -> set[str]:
    """Write who waits for whom; return the new jobs for which a dependency had ended."""
    far = {job.id for job in fresh if not parents.outside.isdisjoint(job.depends_on)}
    if far:
        await tie(session, [job for job in fresh if job.id in far], parents)
    return await link(session, [job for job in fresh if job.id not in far], parents.states)


def _aborted(answer: Added) -> Added:
    if answer.status is AddStatus.ACCEPTED:
        return replace(answer, status=AddStatus.ABORTED)
    return answer


def _key(dedupe: DedupeKey) -> Key:
    return dedupe.scope, dedupe.key


def _key_columns(keys: Sequence[Key]) -> dict[str, object]:
    return {"scope": Texts([scope for scope, _ in keys]), "key": Texts([key for _, key in keys])}


async def adopt(session: Statements, dossiers: Sequence[JobExport], now: datetime) -> set[str]:
    """Write jobs as ``Store.adopt`` promises; return the ids of those that were new."""
    known = await _known(session, [dossier.job.id for dossier in dossiers])
    fresh = {d.job.id: d for d in dossiers if d.job.id not in known}
    there = await _known(session, [p for d in fresh.values() for p in d.job.depends_on])
    births = [_birth(dossier, there | fresh.keys()) for dossier in fresh.values()]
    added = await add(session, births, atomic=False, fence=None, now=now)
    written = {a.job_id for a in added if a.status is AddStatus.ACCEPTED} & fresh.keys()
    changes = [_fate(birth, fresh[birth.id]) for birth in births if birth.id in written]
    if changes:
        await swap(session, list(enumerate(changes)), parents=True, measured=False)
        await session.run("adopt", _rest([fresh[change.after.id] for change in changes]))
    return written


async def _known(session: Statements, ids: Sequence[str]) -> set[str]:
    return {id_ for (id_,) in await session.run("known", {"id": Texts(ids)})} if ids else set()


def _birth(dossier: JobExport, there: set[str]) -> Job:
    """The job as it was submitted, waiting for those of its dependencies that are there."""
    job = dossier.job
    return replace(
        job,
        state=State.PENDING,
        revision=-1,
        attempt=0,
        lease=None,
        due_at=None,
        scheduled_at=None,
        depends_on=tuple(parent for parent in job.depends_on if parent in there),
        trail=dossier.history[:1],
    )


def _fate(birth: Job, dossier: JobExport) -> Change:
    return Change(birth, replace(dossier.job, trail=dossier.history[1:]))


def _rest(dossiers: Sequence[JobExport]) -> dict[str, object]:
    jobs = [dossier.job for dossier in dossiers]
    lines = [(d.job.id, line) for d in dossiers for line in d.logs[-MAX_LOG_LINES:]]
    return {
        "id": Texts([job.id for job in jobs]),
        "progress": Documents([document(job.progress) for job in jobs]),
        "checkpoint": Blobs([job.checkpoint for job in jobs]),
        "depends_on": Texts([literal(job.depends_on) for job in jobs]),
        "line_job": Texts([job_id for job_id, _ in lines]),
        "line": Documents([document(line) for _, line in lines]),
    }
