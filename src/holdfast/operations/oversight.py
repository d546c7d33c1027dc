"""What an operator sees of all jobs at once: failures by group, and measures over time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.model.failure_groups import FailureGroups
from holdfast.model.series import Series
from holdfast.model.times import Span


class OversightBackend(Protocol):
    """Where the reads of an operator run: on a store, or at a service."""

    async def failure_groups(self, *, time_range: Span = timedelta(hours=1)) -> FailureGroups: ...

    async def series(
        self,
        *,
        time_range: Span = timedelta(hours=1),
        step: Span | None = None,
        queues: Sequence[str] = (),
        types: Sequence[str] = (),
        breakdown_by: Sequence[str] = (),
    ) -> Series: ...


class OversightOperations(ABC):
    """What an operator can read of all jobs at once."""

    @property
    @abstractmethod
    def operations(self) -> OversightBackend:
        """The operations of an open app or client; RuntimeError before it is open."""

    async def failure_groups(self, *, time_range: Span = timedelta(hours=1)) -> FailureGroups:
        """Return the failures of the last hour, or of up to 7 days, in groups.

        A group has one type, one code, and messages that differ in values only. It counts jobs
        that became FAILED or DEAD_LETTER in the window, also those that were retried or deleted
        since; ``failed_now`` counts what is failed now. ``search(group=...)`` lists its jobs.
        The series of a group has a step per minute, in windows of more than two hours per hour.
        """
        return await self.operations.failure_groups(time_range=time_range)

    async def series(
        self,
        *,
        time_range: Span = timedelta(hours=1),
        step: Span | None = None,
        queues: Sequence[str] = (),
        types: Sequence[str] = (),
        breakdown_by: Sequence[str] = (),
    ) -> Series:
        """Return counts and percentiles of the last hour, or of up to 7 days, step by step.

        A step is 1 minute (ranges of up to 3 hours), 10 minutes (2 days) or 1 hour; by default the
        one that suits the range. ``breakdown_by`` QUEUE, TYPE; or name some ``queues``, ``types``.
        The total is over all queues. Each step names at most 200 queues and types.
        """
        return await self.operations.series(
            time_range=time_range,
            step=step,
            queues=queues,
            types=types,
            breakdown_by=breakdown_by,
        )
