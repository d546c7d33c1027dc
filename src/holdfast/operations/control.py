"""What operators do beside single jobs, the same for an app with a store and for a client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Protocol

from holdfast.model.queues import QueueScale
from holdfast.model.times import Span
from holdfast.model.workers import WorkerInfo
from holdfast.operations.bulk import BulkOperations
from holdfast.operations.graph import JobGraph
from holdfast.operations.limits import LimitInfo
from holdfast.operations.schedules import Schedules


class ControlBackend(Protocol):
    """The part of the operations that operators use."""

    @property
    def schedules(self) -> Schedules: ...

    @property
    def bulk(self) -> BulkOperations: ...

    async def graph(self, job_id: str, *, collapse: bool = True) -> JobGraph: ...

    async def limit_states(self) -> list[LimitInfo]: ...

    async def set_limit(
        self,
        scope: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Span = timedelta(seconds=1),
        burst: int | None = None,
    ) -> LimitInfo: ...

    async def lift_limit(self, scope: str) -> LimitInfo | None: ...

    async def drain(self, worker: str) -> WorkerInfo: ...

    async def undrain(self, worker: str) -> WorkerInfo: ...

    async def scale(self, queue: str, *, slots: int = 20) -> QueueScale: ...


class Control(ABC):
    """Operators' part of an app or a client: schedules, limits, workers, autoscaling."""

    @property
    @abstractmethod
    def operations(self) -> ControlBackend:
        """Where the calls go."""
        ...

    @property
    def schedules(self) -> Schedules:
        """Schedules of the code and dynamic ones: list, create, change, pause, run, delete."""
        return self.operations.schedules

    @property
    def bulk(self) -> BulkOperations:
        """Operations on many jobs in the background: start, preview, list, get, cancel, wait."""
        return self.operations.bulk

    async def graph(self, job_id: str, *, collapse: bool = True) -> JobGraph:
        """Return the workflow around a job: nodes, edges and states, of at most 2,000 jobs.

        Siblings that are alike become one node with counts, unless ``collapse`` is False.
        NotFoundError when there is no such job.
        """
        return await self.operations.graph(job_id, collapse=collapse)

    async def limit_states(self) -> list[LimitInfo]:
        """Return every limit with its use and where it comes from."""
        return await self.operations.limit_states()

    async def set_limit(
        self,
        scope: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Span = timedelta(seconds=1),
        burst: int | None = None,
    ) -> LimitInfo:
        """Set a limit of ``queue:NAME``, ``task:TYPE`` or ``key:TYPE`` across all workers.

        It holds until it is lifted, across restarts and deploys, in place of what code declares.
        ``burst`` of them may start at once after a pause; by default 1 and a tenth of the rate.
        """
        return await self.operations.set_limit(
            scope, concurrency=concurrency, rate=rate, per=per, burst=burst
        )

    async def lift_limit(self, scope: str) -> LimitInfo | None:
        """Lift a limit that was set at run time; what the code declares applies again."""
        return await self.operations.lift_limit(scope)

    async def drain(self, worker: str) -> WorkerInfo:
        """Ask a worker to stop claiming; it finishes its jobs and stays up until undrained.

        It follows within seconds. A restart of the worker ends it. NotFoundError when no such
        worker is alive.
        """
        return await self.operations.drain(worker)

    async def undrain(self, worker: str) -> WorkerInfo:
        """Ask a drained worker to claim again."""
        return await self.operations.undrain(worker)

    async def scale(self, queue: str, *, slots: int = 20) -> QueueScale:
        """Return how many workers of so many slots the jobs of a queue would fill."""
        return await self.operations.scale(queue, slots=slots)
