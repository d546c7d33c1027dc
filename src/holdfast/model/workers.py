"""What a worker reports about itself."""

from __future__ import annotations

from datetime import datetime

import msgspec

PREFIX = "worker:"
"""The prefix of the lock that each worker holds in the store while it is alive."""
ALL = "worker"
"""The prefix of these locks and those of workers over HTTP."""


def remote_prefix(namespace: str) -> str:
    """Return the prefix of the locks of the workers over HTTP in a namespace."""
    return f"worker/{namespace}:"


SUPERVISED = "-supervised-"
"""What the name of a worker process contains if a supervisor watches over it."""


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

    def serves(self, queue: str, type_: str) -> bool:
        """Whether this worker has a handler for the jobs of a type in a queue."""
        return queue in self.queues and (type_ in self.types or catch_all_name(queue) in self.types)


def is_supervised(name: str) -> bool:
    """Whether a supervisor watches over the worker with this name."""
    return SUPERVISED in name


def catch_all_name(queue: str) -> str:
    """Return what a worker announces among its types for the catch-all handler of a queue."""
    return f"{queue}:*"
