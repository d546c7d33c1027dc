"""What operators do, for blocking code. Written by scripts/generate_sync.py."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Unpack

from msgspec import UNSET

from holdfast.model.bulk import BulkAction, BulkOperation, BulkPreview
from holdfast.model.queues import QueueScale
from holdfast.model.results import SubmissionResult
from holdfast.model.times import Moment, Span
from holdfast.model.workers import WorkerInfo
from holdfast.operations.background import Background, BackgroundOperations
from holdfast.operations.bulk import BulkOperations, BulkOptions
from holdfast.operations.filters import JobFilter
from holdfast.operations.graph import JobGraph
from holdfast.operations.limits import LimitInfo
from holdfast.operations.schedules import LAST_RUNS, Schedules
from holdfast.tasks.schedule import MissedRuns
from holdfast.tasks.schedule_values import ScheduleInfo


class SyncControl(BackgroundOperations):
    """What operators do with an app or a client, blocking."""

    @property
    def schedules(self) -> SyncSchedules:
        """Schedules of the code and dynamic ones: list, create, change, pause, run, delete."""
        return SyncSchedules(self._run, lambda operations: operations.schedules)

    @property
    def bulk(self) -> SyncBulkOperations:
        """Operations on many jobs in the background: start, preview, list, get, cancel, wait."""
        return SyncBulkOperations(self._run, lambda operations: operations.bulk)

    def graph(self, job_id: str, *, collapse: bool = True) -> JobGraph:
        """Return the workflow around a job: nodes, edges and states, of at most 2,000 jobs."""
        return self._run(lambda operations: operations.graph(job_id, collapse=collapse))

    def limit_states(self) -> list[LimitInfo]:
        """Return every limit with its use and where it comes from."""
        return self._run(lambda operations: operations.limit_states())

    def set_limit(
        self,
        scope: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Span = timedelta(seconds=1),
        burst: int | None = None,
    ) -> LimitInfo:
        """Set a limit of ``queue:NAME``, ``task:TYPE`` or ``key:TYPE`` across all workers."""
        return self._run(
            lambda operations: operations.set_limit(
                scope, concurrency=concurrency, rate=rate, per=per, burst=burst
            )
        )

    def lift_limit(self, scope: str) -> LimitInfo | None:
        """Lift a limit that was set at run time; what the code declares applies again."""
        return self._run(lambda operations: operations.lift_limit(scope))

    def drain(self, worker: str) -> WorkerInfo:
        """Ask a worker to stop claiming; it finishes its jobs and stays up until undrained."""
        return self._run(lambda operations: operations.drain(worker))

    def undrain(self, worker: str) -> WorkerInfo:
        """Ask a drained worker to claim again."""
        return self._run(lambda operations: operations.undrain(worker))

    def scale(self, queue: str, *, slots: int = 20) -> QueueScale:
        """Return how many workers of so many slots the jobs of a queue would fill."""
        return self._run(lambda operations: operations.scale(queue, slots=slots))


class SyncSchedules(Background[Schedules]):
    """What ``Holdfast.schedules`` offers, blocking."""

    def list(
        self, *, after: str = "", limit: int = 100, runs: int = LAST_RUNS
    ) -> builtins.list[ScheduleInfo]:
        """Return schedules by name, each with its next runs and its newest ``runs`` jobs."""
        return self._run(lambda part: part.list(after=after, limit=limit, runs=runs))

    def get(self, name: str) -> ScheduleInfo:
        """Return a schedule; NotFoundError when there is none."""
        return self._run(lambda part: part.get(name))

    def create(
        self,
        name: str,
        type_: str,
        expression: str,
        *,
        tz: str = "UTC",
        payload: object = None,
        missed: MissedRuns | str = MissedRuns.ONE,
        paused: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> ScheduleInfo:
        """Submit jobs of a type at the times of a cron expression, from now on."""
        return self._run(
            lambda part: part.create(
                name,
                type_,
                expression,
                tz=tz,
                payload=payload,
                missed=missed,
                paused=paused,
                options=options,
            )
        )

    def change(
        self,
        name: str,
        *,
        expression: str | None = None,
        tz: str | None = None,
        payload: object = UNSET,
        missed: MissedRuns | str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> ScheduleInfo:
        """Change what is given of a dynamic schedule; ``options`` replace all options."""
        return self._run(
            lambda part: part.change(
                name, expression=expression, tz=tz, payload=payload, missed=missed, options=options
            )
        )

    def pause(self, name: str) -> ScheduleInfo:
        """Stop a schedule, also one of the code: it stays paused across restarts and deploys."""
        return self._run(lambda part: part.pause(name))

    def resume(self, name: str) -> ScheduleInfo:
        """Start a paused schedule again; instants that passed meanwhile are not made up for."""
        return self._run(lambda part: part.resume(name))

    def run(self, name: str) -> SubmissionResult:
        """Submit a job of a schedule now, beside its ticks, also while it is paused."""
        return self._run(lambda part: part.run(name))

    def delete(self, name: str) -> None:
        """Delete a dynamic schedule; the jobs that it made stay."""
        self._run(lambda part: part.delete(name))


class SyncBulkOperations(Background[BulkOperations]):
    """What ``Holdfast.bulk`` offers, blocking."""

    def start(
        self,
        action: BulkAction | str,
        *,
        filter: JobFilter | None = None,
        ids: Sequence[str] | None = None,
        as_of: Moment | None = None,
        dry_run: bool = False,
        by: str = "",
        **options: Unpack[BulkOptions],
    ) -> BulkOperation:
        """Start to cancel, retry, delete, reprioritise or release many jobs, by filter or ids."""
        return self._run(
            lambda part: part.start(
                action, filter=filter, ids=ids, as_of=as_of, dry_run=dry_run, by=by, **options
            )
        )

    def preview(
        self,
        action: BulkAction | str,
        *,
        filter: JobFilter | None = None,
        ids: Sequence[str] | None = None,
        as_of: Moment | None = None,
    ) -> BulkPreview:
        """Return at once how many jobs an operation would look at: 10,000 may mean more."""
        return self._run(lambda part: part.preview(action, filter=filter, ids=ids, as_of=as_of))

    def list(self, *, after: str = "", limit: int = 50) -> builtins.list[BulkOperation]:
        """Return operations, the newest first; ``after`` continues behind an id."""
        return self._run(lambda part: part.list(after=after, limit=limit))

    def get(self, operation_id: str) -> BulkOperation:
        """Return an operation with its progress; NotFoundError when there is none."""
        return self._run(lambda part: part.get(operation_id))

    def cancel(self, operation_id: str) -> BulkOperation:
        """Stop an operation; what it has changed stays. One that has ended does not change."""
        return self._run(lambda part: part.cancel(operation_id))

    def wait(self, operation_id: str, *, timeout: Span | None = None) -> BulkOperation:
        """Wait until an operation has ended; TimeoutError when that takes longer."""
        return self._run(lambda part: part.wait(operation_id, timeout=timeout))


__all__ = ["SyncBulkOperations", "SyncControl", "SyncSchedules"]
