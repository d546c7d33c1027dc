"""Writing jobs that lived elsewhere before: born as any job, then moved to where they are.

Both happen in one transaction, so nobody sees a job between its birth and its present.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from holdfast.model.job import Job, State
from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.postgres.adding import add
from holdfast.store.postgres.arrays import Blobs, Documents, Texts
from holdfast.store.postgres.rows import document
from holdfast.store.postgres.session import Statements
from holdfast.store.postgres.swapping import swap
from holdfast.store.postgres.writing import literal
from holdfast.store.values import AddStatus, Change, Dossier


async def adopt(session: Statements, dossiers: Sequence[Dossier], now: datetime) -> set[str]:
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


def _birth(dossier: Dossier, there: set[str]) -> Job:
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


def _fate(birth: Job, dossier: Dossier) -> Change:
    return Change(birth, replace(dossier.job, trail=dossier.history[1:]))


def _rest(dossiers: Sequence[Dossier]) -> dict[str, object]:
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
