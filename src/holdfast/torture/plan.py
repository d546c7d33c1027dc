"""How hard a run is."""

from __future__ import annotations

import msgspec

QUEUE = "default"
LINE = "line"
"""A queue that one worker serves and one producer fills: its order can be judged."""

CRON = "* * * * *"
TICK = "tick"


class TorturePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to happen; faults are spread evenly over the jobs."""

    jobs: int = 20_000
    kills: int = 50
    """Worker processes to be killed with SIGKILL."""
    pauses: int = 20
    """Worker processes to be stopped for longer than a lease, then to go on."""
    cuts: int = 20
    """Connections to be cut, before or after a request was sent; where there are any."""
    crashes: int = 0
    """Crashes of the store's server, where somebody can bring them about."""
    lease: float = 3.0
    alone: int = 3
    """Worker processes without a supervisor; one more serves a queue by itself."""
    supervised: int = 2
    """Worker processes under a supervisor."""
    slots: int = 10
    backlog: int = 100
    """Jobs that may wait at once: what is taken back stands in line behind them."""
    seed: int = 0
    patience: float = 120.0
    """Seconds that the queue has to finish everything once the faults are over."""


class ProcessPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of a run must know."""

    folder: str
    url: str
    lease: float
    name: str = ""
    queues: tuple[str, ...] = ()
    slots: int = 0
    processes: int = 0
    """For a supervisor."""
    jobs: int = 0
    """For a producer: how many it shall submit."""
    backlog: int = 0
    seed: int = 0


POST = "HOLDFAST_TORTURE"
"""The environment variable that holds a post."""
