"""A running job: what the worker knows about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.model.job import CancelRequest, Job
from holdfast.store import Fence
from holdfast.tasks.context import Channel, JobContext
from holdfast.tasks.job_view import Signals
from holdfast.tasks.registry import Handler
from holdfast.worker.outcomes import Interruption


class Run:
    """A running job, its lease, and the way to stop it."""

    task: asyncio.Task[None] | None = None
    on_interrupt: Callable[[Run], None] | None = None
    """Called when the handler is interrupted."""
    on_signal: Callable[[Run], None] | None = None
    """Called when the signals change."""
    on_written: Callable[[], None] | None = None
    """Called when the outcome was written or dropped."""
    must_run_alone = False
    """Whether jobs of the same claim must go back to the queue before it starts."""
    interruption: Interruption | None = None
    answered = False
    """Whether its outcome was handed over; later outcomes are dropped."""
    in_transaction = False
    """Whether its handler is inside a transaction that will complete it."""
    completing = False
    """Whether that transaction is being committed, or was: the lease may end at any time."""
    completed: Job | None = None
    """The job as its handler's transaction completed it: there is nothing left to write."""

    def __init__(
        self, job: Job, handler: Handler, channel: Callable[[Run], Channel], started: float
    ) -> None:
        self.job = job
        self.handler = handler
        self.signals = Signals()
        assert job.started_at is not None
        left = job.expires_at - job.started_at
        self.timeout = min(job.timeout, handler.timeout, left).total_seconds()
        """How long it may run, in seconds: the shortest of the job's, task's and system's, and
        no longer than the rest of its lifetime."""
        self.deadline = started + self.timeout
        """When it times out or its lifetime ends, by the local monotonic clock."""
        self.renewed = started
        """When the last accepted renewal was sent, by the local monotonic clock."""
        self._make_channel = channel

    @property
    def fence(self) -> Fence:
        """What proves that this worker holds the job."""
        assert self.job.lease is not None
        return Fence(self.job.id, self.job.lease.token)

    @property
    def times_out_at(self) -> datetime:
        """When it times out, by the store's clock."""
        assert self.job.started_at is not None
        return self.job.started_at + timedelta(seconds=self.timeout)

    def channel(self) -> Channel:
        """Return a way for the job's context to reach the store."""
        return self._make_channel(self)

    def context(self) -> JobContext:
        """Return a new context for a handler that declares one.

        The run does not keep it: it refers to the run, and a cycle would keep the payload of
        an ended job until the collector runs.
        """
        return JobContext(self.job, self.times_out_at, self.signals, self.channel())

    def lease_over(self, now: float) -> bool:
        """Whether the lease has surely expired, counted from the last renewal that was sent."""
        return now >= self.renewed + self.job.lease_ttl.total_seconds()

    def cancel(self, request: CancelRequest) -> None:
        """Receive a request to cancel the job."""
        self.signals.cancel = request
        if self.on_signal is not None:
            self.on_signal(self)
        if request.force:
            self.interrupt(Interruption.CANCELLED)

    def lose_lease(self) -> None:
        """Stop the job because another worker may hold it now."""
        self.signals.lease_lost = True
        if self.on_signal is not None:
            self.on_signal(self)
        self.interrupt(Interruption.LEASE_LOST)

    def interrupt(self, why: Interruption) -> None:
        """Stop the handler; only the first reason counts."""
        if self.interruption is None and not self.answered:
            self.interruption = self.signals.interruption = why
            if self.task is not None:
                self.task.cancel()
            if self.on_interrupt is not None:
                self.on_interrupt(self)


def event_fields(run: Run) -> dict[str, object]:
    """Return the fields of every event about a job."""
    job = run.job
    return {"job_id": job.id, "type": job.type, "queue": job.queue, "attempt": job.attempt}


def waited(job: Job) -> float | None:
    """Return the seconds from ready to claimed."""
    if job.started_at is None or job.scheduled_at is None:
        return None
    return max(0.0, (job.started_at - job.scheduled_at).total_seconds())
