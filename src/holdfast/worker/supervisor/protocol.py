"""What a worker process reports to its supervisor: which leases it holds."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from holdfast.worker.run import Run


class LeaseListener(Protocol):
    """Receives every change of held leases, from the worker's loop and from its heartbeat."""

    def claimed(self, runs: Sequence[Run]) -> None:
        """Receive jobs that were just claimed."""
        ...

    def renewed(self, runs: Sequence[Run]) -> None:
        """Receive jobs whose leases were renewed."""
        ...

    def released(self, runs: Sequence[Run]) -> None:
        """Receive jobs whose outcome was written or dropped."""
        ...

    def stuck(self, run: Run) -> None:
        """Receive the job that blocks the worker's loop although its time is over."""
        ...


KIND = getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM)
LARGEST = 128 * 1024
MOST_JOBS = 500
"""Jobs named in one message."""


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a worker process, sent to it when it starts."""

    app: str
    queues: dict[str, float] | list[str]
    slots: int | None
    grace: timedelta
    burst: bool
    maintenance: bool
    observer: str
    name: str


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """A held job: its lease, and how long it may run, in seconds."""

    job_id: str
    token: str
    lease: float
    timeout: float


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The app was found and the worker starts."""


class ClaimedMessage(msgspec.Struct, frozen=True, tag=True):
    """Jobs were claimed."""

    jobs: list[Holding]


class Renewed(msgspec.Struct, frozen=True, tag=True):
    """The worker renewed these leases itself."""

    ids: list[str]


class ReleasedMessage(msgspec.Struct, frozen=True, tag=True):
    """The worker no longer holds these jobs."""

    ids: list[str]


class Stuck(msgspec.Struct, frozen=True, tag=True):
    """A job blocks the worker's loop although its time is over."""

    job_id: str


Report = Ready | ClaimedMessage | Renewed | ReleasedMessage | Stuck

DRAIN = b"drain"
HALT = b"halt"

_encoder = msgspec.msgpack.Encoder()
_reports: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the supervisor's end and the worker's end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
    ours.setblocking(False)
    return ours, theirs


def read_report(data: bytes) -> Report:
    """Decode a report of a worker process."""
    return _reports.decode(data)


class Reporter:
    """The worker's end: reports to the supervisor which leases it holds."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        line.setblocking(False)

    def ready(self) -> None:
        """Report that the worker starts."""
        self._send(Ready())

    def claimed(self, runs: Sequence[Run]) -> None:
        for part in _parts(runs):
            self._send(ClaimedMessage([_holding(run) for run in part]))

    def renewed(self, runs: Sequence[Run]) -> None:
        for part in _parts(runs):
            self._send(Renewed([run.job.id for run in part]))

    def released(self, runs: Sequence[Run]) -> None:
        for part in _parts(runs):
            self._send(ReleasedMessage([run.job.id for run in part]))

    def stuck(self, run: Run) -> None:
        self._send(Stuck(run.job.id))

    def _send(self, report: Report) -> None:
        with contextlib.suppress(OSError):
            self._line.send(_encoder.encode(report))


def _parts(runs: Sequence[Run]) -> list[Sequence[Run]]:
    return [runs[i : i + MOST_JOBS] for i in range(0, len(runs), MOST_JOBS)]


def _holding(run: Run) -> Holding:
    return Holding(
        run.fence.job_id, run.fence.token, run.job.lease_ttl.total_seconds(), run.timeout
    )
