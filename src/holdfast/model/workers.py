"""What a worker reports about itself."""

from __future__ import annotations

from datetime import datetime

import msgspec

PREFIX = "worker:"
"""The prefix of the lock that each worker holds in the store while it is alive."""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, as it announces itself."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    types: tuple[str, ...]
    slots: int
    running: int
    started_at: datetime
    leaked_threads: int = 0
    seen_until: datetime | None = None
