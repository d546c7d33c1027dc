"""The reads of an operator, at a service."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from holdfast.client.requests import query
from holdfast.client.schedules import ServiceRequests
from holdfast.model.failure_groups import FailureGroups
from holdfast.model.times import Span
from holdfast.operations.changes import read_span


class RemoteOversight(ServiceRequests, Protocol):
    """What an operator can read, from a service."""

    async def failure_groups(self, *, time_range: Span = timedelta(hours=1)) -> FailureGroups:
        """Return the failures of a window in groups."""
        window = query({"time_range": read_span("time_range", time_range)})
        return await self.request("GET", f"/failures/groups{window}", FailureGroups)
