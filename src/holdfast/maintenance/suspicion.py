"""Whether a job may have killed its worker.

A job that kills its worker mostly does so soon after its start. One that ran longer is not
suspected: the others would have to wait as long to be safe from it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.model.job import Job
from holdfast.model.workers import is_supervised
from holdfast.runtime.host import HOST, uptime

SOON = timedelta(seconds=3)
"""How long after its start a job is suspected when its worker dies."""

Uptime = Callable[[], timedelta]


def died_soon(job: Job, died_at: datetime) -> bool:
    """Whether a job had been running for a short time only when its worker died."""
    return job.started_at is None or died_at - job.started_at <= SOON


def may_have_killed(job: Job, now: datetime, uptime: Uptime = uptime) -> bool:
    """Whether a job may have killed the worker that stopped renewing its lease.

    It did not if the worker's supervisor died too, since that would have recovered the job
    first, or if the host restarted.
    """
    lease = job.lease
    if lease is None or lease.until is None or is_supervised(lease.worker):
        return False
    alive_at = lease.until - job.lease_ttl
    restarted = lease.worker.startswith(f"{HOST}-") and alive_at < now - uptime()
    return not restarted and died_soon(job, alive_at)
