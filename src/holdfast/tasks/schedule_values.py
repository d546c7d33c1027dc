"""Schedules as the store keeps them and as clients see them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.model.job import State
from holdfast.model.times import Instant
from holdfast.tasks.plans import Plan
from holdfast.tasks.schedule import CronEntry, MissedRuns

NO_PAYLOAD = msgspec.Raw(b"null")


class ScheduleSource(StrEnum):
    """Where a schedule comes from."""

    CODE = "code"
    """``@app.cron``: it can be paused, not changed."""
    DYNAMIC = "dynamic"
    """Created through the library, the API or the command line."""
    BULLMQ = "bullmq"
    """A job scheduler of BullMQ, which its own clients manage."""


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a schedule made."""

    job_id: str
    state: State
    created_at: Instant
    finished_at: datetime | None = None


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule: when it runs, what it submits, its next and its last runs."""

    name: str
    source: ScheduleSource
    type: str
    queue: str | None = None
    """None: the queue that the task declares."""
    expression: str
    words: str
    """The expression in words."""
    tz: str
    missed: MissedRuns
    paused: bool = False
    next_runs: tuple[datetime, ...] = ()
    """The next three instants; none while it is paused."""
    last_runs: tuple[ScheduleRun, ...] = ()
    """The newest ten jobs, newest first."""
    payload: object = None
    """What a dynamic schedule submits."""
    options: Mapping[str, object] = {}
    """The options of the jobs of a dynamic schedule."""
    served: bool = True
    """Whether a live worker runs the type of its jobs."""
    created_at: Instant | None = None
    changed_at: Instant | None = None


class StoredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A dynamic schedule, as the store keeps it under its name."""

    type: str
    missed: MissedRuns
    plans: tuple[Plan, ...]
    """At least one."""
    payload: msgspec.Raw = NO_PAYLOAD
    options: Mapping[str, object] = {}
    created_at: Instant
    changed_at: Instant
    owner: str = ""
    """The API key that created or last changed it: its jobs count as jobs of this key."""

    def entry(self, name: str) -> CronEntry:
        """Return it as the cron service serves it."""
        return CronEntry(
            name=name,
            type=self.type,
            expression=self.plans[-1].expression,
            tz=self.plans[-1].tz,
            missed=self.missed,
            payload=self.payload,
            options=dict(self.options),  # type: ignore[arg-type]  # checked when it was written
        )


class StoredPause(msgspec.Struct, frozen=True, kw_only=True):
    """The pauses of a schedule of the code, as the store keeps them under its name."""

    plans: tuple[Plan, ...]


class PublishedCron(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of the code, as workers publish it."""

    type: str
    expression: str
    tz: str
    missed: MissedRuns
    runnable: bool = False
    """Whether its payload and options have a JSON form, so that not only the code can submit it."""
    payload: msgspec.Raw = NO_PAYLOAD
    options: Mapping[str, object] = {}

    def entry(self, name: str) -> CronEntry:
        """Return it as the cron service of its code serves it."""
        return CronEntry(
            name=name,
            type=self.type,
            expression=self.expression,
            tz=self.tz,
            missed=self.missed,
            payload=self.payload,
            options=dict(self.options),  # type: ignore[arg-type]  # the code's own
        )
