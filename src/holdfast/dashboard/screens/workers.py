"""Workers: where they run, what they run, how full they are; drain and undrain."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.dashboard.parts import ListPart, part_of
from holdfast.dashboard.visits import Action, ActionDone, ScreenRoute, Visit
from holdfast.errors import NotFoundError
from holdfast.model.workers import RunningJob, WorkerInfo

LISTED = 10
"""Running jobs that are shown of one worker."""
LATE = timedelta(seconds=10)
"""A worker whose last beat is older may have stopped; it counts as alive a moment longer."""


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One worker."""

    worker: WorkerInfo
    jobs: tuple[RunningJob, ...]
    more: int
    late: bool
    has_catch_all: bool
    types: tuple[str, ...]

    @property
    def share(self) -> float:
        """How many of its slots are in use, from 0 to 1."""
        return self.worker.running / (self.worker.slots or 1)


class WorkersView(msgspec.Struct, frozen=True, kw_only=True):
    """The workers that are alive."""

    rows: tuple[WorkerRow, ...]
    part: ListPart
    running: int
    slots: int
    draining: int
    leaked: int
    memory: int
    hosts: int
    versions: tuple[str, ...]
    app_versions: tuple[str, ...]
    ready: int
    """Jobs that wait for a worker."""


async def workers(visit: Visit) -> WorkersView:
    """Return the workers, those with a problem first."""
    found = await visit.operations.workers()
    now = visit.now
    rows = sorted((_row(each, now) for each in found), key=_urgency)
    ready = 0
    if not rows:
        ready = sum(q.activity.ready for q in await visit.operations.queues() if q.activity)
    shown, part = part_of(visit, rows)
    return WorkersView(
        rows=shown,
        part=part,
        running=sum(each.running for each in found),
        slots=sum(each.slots for each in found),
        draining=sum(each.draining for each in found),
        leaked=sum(each.leaked_threads for each in found),
        memory=sum(each.memory for each in found),
        hosts=len({each.host for each in found}),
        versions=tuple(sorted({each.version for each in found if each.version})),
        app_versions=tuple(sorted({each.app_version for each in found if each.app_version})),
        ready=ready,
    )


def _row(worker: WorkerInfo, now: datetime) -> WorkerRow:
    return WorkerRow(
        worker=worker,
        jobs=worker.running_jobs[:LISTED],
        more=max(0, worker.running - min(LISTED, len(worker.running_jobs))),
        late=worker.announced_at is not None and now - worker.announced_at > LATE,
        has_catch_all=any(each.endswith(":*") for each in worker.types),
        types=tuple(each for each in worker.types if not each.endswith(":*")),
    )


def _urgency(row: WorkerRow) -> tuple[bool, bool, str, str]:
    worker = row.worker
    return (not worker.leaked_threads, not worker.draining, worker.host, worker.id)


async def drain(visit: Visit) -> ActionDone:
    """Ask a worker to stop claiming."""
    name = visit.path["worker"]
    try:
        await visit.operations.drain(name)
    except NotFoundError:
        return _gone(name)
    message = f"Worker {name} claims no more jobs. Those that it runs go on."
    return ActionDone(message=message)


async def undrain(visit: Visit) -> ActionDone:
    """Ask a drained worker to claim again."""
    name = visit.path["worker"]
    try:
        await visit.operations.undrain(name)
    except NotFoundError:
        return _gone(name)
    return ActionDone(message=f"Worker {name} claims jobs again.")


def _gone(name: str) -> ActionDone:
    return ActionDone(message=f"Nothing was changed: no worker {name} is alive.", failed=True)


SCREENS = (
    ScreenRoute(
        path="/workers",
        title="Workers",
        template="workers.html",
        call="listWorkers",
        view=workers,
        section="workers",
        reads=2,
    ),
)

ACTIONS = (
    Action(path="/workers/{worker}/drain", call="drainWorker", run=drain),
    Action(path="/workers/{worker}/undrain", call="undrainWorker", run=undrain),
)
