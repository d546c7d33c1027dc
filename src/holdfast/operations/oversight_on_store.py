"""The reads of an operator, on any store."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.failure_groups import FailureGroups
from holdfast.model.times import Span
from holdfast.operations.changes import Changes, read_span
from holdfast.operations.failure_groups import failure_groups


class Oversight(Changes):
    """The reads of an operator over one store."""

    async def failure_groups(self, *, time_range: Span = timedelta(hours=1)) -> FailureGroups:
        """Return the failures of a window in groups."""
        return await failure_groups(self.store, read_span("time_range", time_range))
