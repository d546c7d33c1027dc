"""What a worker reports about itself."""

from __future__ import annotations

import msgspec

from holdfast.model.times import Instant

PREFIX = "worker:"
"""The prefix of the lock that each worker holds in the store while it is alive."""
LEADERSHIP = "maintenance"
"""The lock of the one worker that leads maintenance of all jobs."""
ALL = "worker"
"""The prefix of these locks and those of workers over HTTP."""


def remote_prefix(namespace: str) -> str:
    """Return the prefix of the locks of the workers over HTTP in a namespace."""
    return f"worker/{namespace}:"


SUPERVISED = "-supervised-"
"""What the name of a worker process contains if a supervisor watches over it."""


MOST_RUNNING = 100
"""Running jobs that a worker announces one by one."""


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker runs."""

    job_id: str
    type: str
    queue: str
    since: Instant | None


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, as it announces itself."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    types: tuple[str, ...]
    slots: int
    running: int
    started_at: Instant
    leaked_threads: int = 0
    seen_until: Instant | None = None
    version: str = ""
    """The version of holdfast."""
    app_version: str = ""
    """The version of the app, as the app gives it."""
    memory: int = 0
    """The bytes that the process uses."""
    running_jobs: tuple[RunningJob, ...] = ()
    """The jobs that it runs, those that started first; at most a hundred."""
    draining: bool = False
    """Whether an operator has drained it: it claims nothing."""
    announced_at: Instant | None = None
    """Its last heartbeat."""

    @property
    def is_remote(self) -> bool:
        """Whether it claims over HTTP: such a worker never leads maintenance."""
        return not self.host

    def serves(self, queue: str, type_: str) -> bool:
        """Whether this worker has a handler for the jobs of a type in a queue; drained or not."""
        return queue in self.queues and (type_ in self.types or catch_all_name(queue) in self.types)


def is_supervised(name: str) -> bool:
    """Whether a supervisor watches over the worker with this name."""
    return SUPERVISED in name


def catch_all_name(queue: str) -> str:
    """Return what a worker announces among its types for the catch-all handler of a queue."""
    return f"{queue}:*"
