"""A structlog processor that adds the running job to every event."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from holdfast.observe.current import current_job


def add_job(logger: object, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add ``job_id``, ``job_type``, ``job_queue`` and ``attempt`` to an event inside of a job.

    Fields that the event has already stay as they are.
    """
    if (job := current_job()) is not None:
        event.setdefault("job_id", job.job_id)
        event.setdefault("job_type", job.type)
        event.setdefault("job_queue", job.queue)
        event.setdefault("attempt", job.attempt)
    return event


__all__ = ["add_job"]
