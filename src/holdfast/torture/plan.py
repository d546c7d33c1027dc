"""How many jobs and faults a run has, and what its processes need to know."""

from __future__ import annotations

import msgspec

QUEUE = "default"
ORDERED_QUEUE = "ordered"
"""A queue with one worker and one producer, so that its order can be checked."""

CRON = "* * * * *"
CRON_TASK = "tick"


class TorturePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a run; faults are spread evenly over the jobs."""

    jobs: int = 20_000
    kills: int = 50
    """Worker processes to kill with SIGKILL."""
    pauses: int = 20
    """Worker processes to stop for longer than a lease, and then to continue."""
    cuts: int = 20
    """Connections to cut, before or after a request is sent; for stores with a server."""
    crashes: int = 0
    """Crashes of the store's server, for callers that can crash it."""
    lease: float = 3.0
    alone: int = 3
    """Worker processes without a supervisor; one more serves the ordered queue."""
    supervised: int = 2
    """Worker processes under a supervisor."""
    slots: int = 10
    backlog: int = 100
    """Jobs that may be ready at once: a job that is retried waits behind them."""
    seed: int = 0
    patience: float = 120.0
    """Seconds in which all jobs must end after the last fault."""


class ProcessPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one process of a run."""

    folder: str
    url: str
    lease: float
    name: str = ""
    queues: tuple[str, ...] = ()
    slots: int = 0
    processes: int = 0
    """For a supervisor: how many workers it runs."""
    jobs: int = 0
    """For a producer: how many jobs it submits."""
    backlog: int = 0
    seed: int = 0


PLAN_VARIABLE = "HOLDFAST_TORTURE"
"""The environment variable that holds a ProcessPlan as JSON."""
