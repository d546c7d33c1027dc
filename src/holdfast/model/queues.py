"""What operators decide about queues, and what autoscalers need of them."""

from __future__ import annotations

import msgspec

from holdfast.model.times import Instant


class QueuePause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a queue is paused, since when and by whom, and when it resumes by itself."""

    at: Instant
    reason: str = ""
    until: Instant | None = None
    """None: until it is resumed."""
    by: str = ""


class QueueActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What happens in a queue: what an overview shows of it."""

    ready: int = 0
    """Jobs that a worker may claim now."""
    running: int = 0
    """Jobs that run: slots in use."""
    oldest_ready_seconds: float | None = None
    """How long the oldest ready job has been ready; None: no job is."""
    workers: int = 0
    """Workers that serve the queue and are not drained."""
    slots: int = 0
    """Jobs that these workers run at once; they may serve other queues as well."""
    submitted: int = 0
    """Jobs of the last hour."""
    completed: int = 0
    """Jobs that completed in the last hour."""
    failed: int = 0
    """Jobs that became FAILED or DEAD_LETTER in the last hour."""
    in_rate: float = 0.0
    """Jobs submitted per second, over the last five minutes."""
    out_rate: float = 0.0
    """Jobs that ended per second, over the last five minutes."""
    held_back_by: tuple[str, ...] = ()
    """Limits that are used up while jobs of the queue are ready, such as ``task:email.send``."""


class QueueScale(msgspec.Struct, frozen=True, kw_only=True):
    """How much work a queue has, for an autoscaler; an unknown queue has none."""

    queue: str
    ready: int
    running: int
    oldest_ready_seconds: float
    """How long the oldest ready job has been waiting."""
    desired_workers: int
    """Workers of the given number of slots that the ready and running jobs would fill."""
