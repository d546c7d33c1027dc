"""The reads of an operator, on any store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.model.failure_groups import FailureGroups
from holdfast.model.series import Series
from holdfast.model.times import Span
from holdfast.operations import series
from holdfast.operations.changes import Changes, read_span
from holdfast.operations.failure_groups import failure_groups


class Oversight(Changes):
    """The reads of an operator over one store."""

    async def failure_groups(self, *, time_range: Span = timedelta(hours=1)) -> FailureGroups:
        """Return the failures of a window in groups."""
        return await failure_groups(self.store, read_span("time_range", time_range))

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
        return await series.series(
            self.store,
            time_range=time_range,
            step=step,
            queues=queues,
            types=types,
            breakdown_by=breakdown_by,
        )
