"""What every verb that moves jobs shares."""

from __future__ import annotations

from holdfast.model.job import Job, State
from holdfast.store.sqlite.values import micros
from holdfast.store.sqlite.writer import Transaction

WAKING = frozenset({State.SCHEDULED, State.DELAYED, State.RETRYING})
AT_ONCE = 0


def lift_at(tx: Transaction, job: Job) -> int | None:
    """When ageing will lift a job that just became ready; None when it will not."""
    if job.state is not State.SCHEDULED or not tx.ageing or job.scheduled_at is None:
        return None
    interval = tx.ageing.get(job.queue)
    return None if interval is None else micros(job.scheduled_at) + interval
