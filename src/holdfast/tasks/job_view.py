"""What every view of a running job shows: its data, and the signals that it receives."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from holdfast.model.job import CancelRequest, Job, attempt_limit, read_extra
from holdfast.model.payload import encode_result

T = TypeVar("T")


class Signals:
    """Signals to a running job; set by the worker, read by the context."""

    cancel: CancelRequest | None = None
    lease_lost = False
    interruption: str | None = None
    """Why the worker stopped the handler, if it did."""


class JobView:
    """The data of a running job."""

    def __init__(self, job: Job, deadline: datetime, signals: Signals) -> None:
        self._job = job
        self._deadline = deadline
        self._signals = signals

    @property
    def job_id(self) -> str:
        """The job's id; the same in every attempt."""
        return self._job.id

    @property
    def type(self) -> str:
        """The job's type."""
        return self._job.type

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._job.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._job.attempt

    @property
    def max_attempts(self) -> int:
        """How many attempts there may be."""
        return attempt_limit(self._job)

    @property
    def attempt_id(self) -> str:
        """The identity of this attempt."""
        return self._job.attempt_id

    @property
    def previous_attempt_id(self) -> str | None:
        """The identity of the attempt before, if there was one."""
        return self._job.previous_attempt_id

    @property
    def created_at(self) -> datetime:
        """When the job was submitted."""
        return self._job.created_at

    @property
    def started_at(self) -> datetime | None:
        """When this attempt was claimed, by the store's clock."""
        return self._job.started_at

    @property
    def headers(self) -> Mapping[str, str]:
        """Context that came with the job; jobs that it spawns inherit it."""
        return read_extra(self._job.extra).headers

    @property
    def correlation_id(self) -> str:
        """The caller's tracing id; empty when there is none."""
        return self._job.correlation_id

    @property
    def tags(self) -> Mapping[str, str]:
        """The job's labels."""
        return self._job.tags

    @property
    def idempotency_key(self) -> str:
        """The key the job was submitted with; empty when there is none."""
        return self._job.idempotency_key

    @property
    def deadline(self) -> datetime:
        """When this attempt times out, by the store's clock."""
        return self._deadline

    @property
    def lease_lost(self) -> bool:
        """Whether another worker may have the job now: stop, no further write is accepted."""
        return self._signals.lease_lost

    def is_cancelled(self) -> bool:
        """Whether this job was cancelled."""
        return self._signals.cancel is not None

    def last_checkpoint(self) -> bytes | None:
        """Return the newest checkpoint, as it was written."""
        return self._job.checkpoint

    def restore(self, as_: builtins.type[T]) -> T | None:
        """Return the newest checkpoint, decoded from JSON into a type; None when there is none."""
        if self._job.checkpoint is None:
            return None
        return msgspec.json.decode(self._job.checkpoint, type=as_)


class ContextView(JobView):
    """What both contexts share: the data of the job, and the result that it sets."""

    def __init__(self, job: Job, deadline: datetime, signals: Signals) -> None:
        super().__init__(job, deadline, signals)
        self.given_result: bytes | None = None
        """The value given to ``set_result``, as JSON."""

    def set_result(self, value: object) -> None:
        """Set the job's result now, to be stored when it completes.

        A job that its ``transaction`` completes gets its result this way; set it before the end
        of the block. Raises ``PermanentError`` for a value that cannot be stored. Without a
        transaction, a value that the handler returns replaces this one.
        """
        self.given_result = encode_result(value)
