"""What operators do, on a store."""

from __future__ import annotations

from datetime import timedelta

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import State
from holdfast.model.queues import QueueScale
from holdfast.model.times import Span, shown
from holdfast.model.workers import WorkerInfo
from holdfast.operations import limits
from holdfast.operations.bulk import BulkOperations
from holdfast.operations.draining import drain
from holdfast.operations.graph import JobGraph, graph
from holdfast.operations.limits import LimitInfo
from holdfast.operations.schedules import Schedules
from holdfast.operations.submitter import Submitter
from holdfast.store import QueueInfo, Store

MOST_SLOTS = 100_000


class ControlOnStore:
    """The operators' part of the operations on a store."""

    store: Store
    _submitter: Submitter

    @property
    def schedules(self) -> Schedules:
        """The schedules of the store."""
        return Schedules(self.store, self._submitter)

    @property
    def bulk(self) -> BulkOperations:
        """The operations on many jobs of the store."""
        return BulkOperations(self.store)

    async def graph(self, job_id: str, *, collapse: bool = True) -> JobGraph:
        """Return the workflow around a job."""
        return await graph(self.store, job_id, collapse=collapse)

    async def limit_states(self) -> list[LimitInfo]:
        """Return every limit with its use."""
        return await limits.limit_states(self.store)

    async def set_limit(
        self,
        scope: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Span = timedelta(seconds=1),
        burst: int | None = None,
    ) -> LimitInfo:
        """Set a limit at run time."""
        kind, name = limits.name_in(scope)
        names = {"queue": name} if kind == "queue" else {"type_": name}
        limits.check_scope(self.store, scope)
        await self._submitter.admission.admit_names(**names)
        return await limits.set_limit(
            self.store, scope, concurrency=concurrency, rate=rate, per=per, burst=burst
        )

    async def lift_limit(self, scope: str) -> LimitInfo | None:
        """Lift a limit that was set at run time."""
        return await limits.lift_limit(self.store, scope)

    async def drain(self, worker: str) -> WorkerInfo:
        """Ask a worker to stop claiming."""
        return await drain(self.store, worker, drained=True)

    async def undrain(self, worker: str) -> WorkerInfo:
        """Ask a drained worker to claim again."""
        return await drain(self.store, worker, drained=False)

    async def scale(self, queue: str, *, slots: int = 20) -> QueueScale:
        """Return how many workers a queue needs."""
        if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= MOST_SLOTS:
            message = f"must be from 1 to {MOST_SLOTS}, got {shown(slots)}"
            raise ValidationError([Fault("slots", "OUT_OF_RANGE", message)])
        info = next(
            (q for q in await self.store.queues() if q.name == queue), QueueInfo(name=queue)
        )
        ready, running = info.counts.get(State.SCHEDULED, 0), info.counts.get(State.RUNNING, 0)
        since, now = info.ready_since, self.store.now()
        return QueueScale(
            queue=queue,
            ready=ready,
            running=running,
            oldest_ready_seconds=max(0.0, (now - since).total_seconds()) if since else 0.0,
            desired_workers=-(-(ready + running) // slots),
        )
