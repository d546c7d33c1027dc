"""What operators do, over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol
from urllib.parse import quote

from holdfast.api.responses import LimitLift, LimitList
from holdfast.client.bulk import RemoteBulkOperations
from holdfast.client.requests import encode_body, job_path, query, queue_path
from holdfast.client.schedules import RemoteSchedules, ServiceRequests
from holdfast.errors import Fault, ValidationError
from holdfast.model.queues import QueueScale
from holdfast.model.times import Span, shown
from holdfast.model.workers import WorkerInfo
from holdfast.operations.changes import read_span
from holdfast.operations.graph import JobGraph
from holdfast.operations.limits import LimitInfo


class RemoteControl(ServiceRequests, Protocol):
    """The operators' part of the operations at a service."""

    @property
    def schedules(self) -> RemoteSchedules:
        """The schedules of the service."""
        return RemoteSchedules(self)

    @property
    def bulk(self) -> RemoteBulkOperations:
        """The operations on many jobs of the service."""
        return RemoteBulkOperations(self)

    async def graph(self, job_id: str, *, collapse: bool = True) -> JobGraph:
        """Return the workflow around a job."""
        path = f"{job_path(job_id, '/graph')}{query({'collapse': collapse})}"
        return await self.request("GET", path, JobGraph, subject=job_id)

    async def limit_states(self) -> list[LimitInfo]:
        """Return every limit with its use."""
        return [*(await self.request("GET", "/limits", LimitList)).limits]

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
        given = {
            "concurrency": concurrency,
            "rate": rate,
            "per": read_span("per", per),
            "burst": burst,
        }
        body = {name: value for name, value in given.items() if value is not None}
        return await self.request("POST", _path("limits", scope), LimitInfo, encode_body(body))

    async def lift_limit(self, scope: str) -> LimitInfo | None:
        """Lift a limit that was set at run time."""
        return (await self.request("DELETE", _path("limits", scope), LimitLift)).limit

    async def drain(self, worker: str) -> WorkerInfo:
        """Ask a worker to stop claiming."""
        path = f"{_path('workers', worker)}/drain"
        return await self.request("POST", path, WorkerInfo, subject=worker)

    async def undrain(self, worker: str) -> WorkerInfo:
        """Ask a drained worker to claim again."""
        path = f"{_path('workers', worker)}/undrain"
        return await self.request("POST", path, WorkerInfo, subject=worker)

    async def scale(self, queue: str, *, slots: int = 20) -> QueueScale:
        """Return how many workers a queue needs."""
        path = f"{queue_path(queue, 'scale')}{query({'slots': slots})}"
        return await self.request("GET", path, QueueScale)


def _path(group: str, name: str) -> str:
    if not isinstance(name, str) or not name:
        field = "scope" if group == "limits" else "worker"
        raise ValidationError([Fault(field, "INVALID", f"must be a name, got {shown(name)}")])
    return f"/{group}/{quote(name, safe='')}"
