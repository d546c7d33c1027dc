"""What operators decide about queues, and what autoscalers need of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec


class QueuePause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a queue is paused, since when and by whom, and when it resumes by itself."""

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    reason: str = ""
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """None: until it is resumed."""
    by: str = ""


class QueueScale(msgspec.Struct, frozen=True, kw_only=True):
    """How much work a queue has, for an autoscaler; an unknown queue has none."""

    queue: str
    ready: int
    running: int
    oldest_ready_seconds: float
    """How long the oldest ready job has been waiting."""
    desired_workers: int
    """Workers of the given number of slots that the ready and running jobs would fill."""
