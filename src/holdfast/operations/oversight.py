"""What an operator sees of all jobs at once: failures by group, and measures over time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Protocol

from holdfast.model.failure_groups import FailureGroups
from holdfast.model.times import Span


class OversightBackend(Protocol):
    """Where the reads of an operator run: on a store, or at a service."""

    async def failure_groups(self, *, time_range: Span = timedelta(hours=1)) -> FailureGroups: ...


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
