"""Names on the wire: which keys a store uses, and which ids cannot be job ids."""

from __future__ import annotations

import base64

RESERVED = frozenset(
    {
        *("active", "wait", "waiting-children", "paused", "id", "delayed", "prioritized"),
        *("stalled-check", "completed", "failed", "stalled", "repeat", "limiter", "meta"),
        *("events", "pc", "marker", "de", "dn", "metrics", "priority", "delay", "hf", ""),
    }
)
"""Ids under which a job would overwrite one of its queue's own keys."""


class Keys:
    """The keys of one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.jobs = f"{prefix}:hf:jobs"

    def shared(self, name: str) -> str:
        """Return a key that belongs to all queues together."""
        return f"{self.prefix}:hf:{name}"

    def queue(self, queue: str, name: str) -> str:
        """Return a key of one queue."""
        return f"{self.prefix}:{queue}:{name}"

    def client_name(self, queue: str) -> str:
        """Return the connection name by which BullMQ's ``getWorkers`` finds a worker."""
        return f"{self.prefix}:{base64.b64encode(queue.encode()).decode()}"


def is_usable(job_id: str) -> bool:
    """Whether a job of this id can be written: not reserved, no separator, not v4's marker."""
    return job_id not in RESERVED and ":" not in job_id and job_id != "0"
