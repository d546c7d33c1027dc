"""The reads of an operator, at a service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.client.requests import encode_body, query
from holdfast.client.schedules import ServiceRequests
from holdfast.model.failure_groups import FailureGroups
from holdfast.model.results import JobCounts
from holdfast.model.series import Series
from holdfast.model.times import Span
from holdfast.operations.changes import read_span
from holdfast.operations.filters import JobFilter


class RemoteOversight(ServiceRequests, Protocol):
    """What an operator can read, from a service."""

    async def failure_groups(self, *, time_range: Span = timedelta(hours=1)) -> FailureGroups:
        """Return the failures of a window in groups."""
        window = query({"time_range": read_span("time_range", time_range)})
        return await self.request("GET", f"/failures/groups{window}", FailureGroups)

    async def count(self, wanted: JobFilter) -> JobCounts:
        """Return how many jobs match, by state."""
        return await self.request("POST", "/jobs/count", JobCounts, encode_body(wanted))

    async def series(
        self,
        *,
        time_range: Span = timedelta(hours=1),
        step: Span | None = None,
        queues: Sequence[str] = (),
        types: Sequence[str] = (),
        breakdown_by: Sequence[str] = (),
    ) -> Series:
        """Return the measures of a range, step by step."""
        parameters = {
            "time_range": read_span("time_range", time_range),
            "step": None if step is None else read_span("step", step),
            "queues": list(queues),
            "types": list(types),
            "breakdown_by": list(breakdown_by),
        }
        return await self.request("GET", f"/series{query(parameters)}", Series)
