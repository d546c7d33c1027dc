"""What a worker reports about itself."""

from __future__ import annotations

from datetime import datetime

import msgspec

PREFIX = "worker:"
"""Each worker holds its own name in the store, with this prefix, for as long as it lives."""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about itself."""

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
