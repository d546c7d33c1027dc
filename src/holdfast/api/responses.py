"""The other response bodies of the API: lists, audit entries, health."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.model.bulk import BulkOperation
from holdfast.model.queues import QueuePause
from holdfast.model.status import LogEntry
from holdfast.model.workers import WorkerInfo
from holdfast.operations.limits import LimitInfo
from holdfast.store import QueueInfo


class QueueList(msgspec.Struct, frozen=True):
    """Every queue."""

    queues: tuple[QueueInfo, ...]


class QueueState(msgspec.Struct, frozen=True):
    """Whether a queue is paused."""

    queue: str
    paused: bool
    pause: QueuePause | None = None


class QueueAgeing(msgspec.Struct, frozen=True):
    """The interval after which waiting jobs of a queue rise by one level; null: never."""

    queue: str
    interval: timedelta | None


class LimitList(msgspec.Struct, frozen=True):
    """Every limit."""

    limits: tuple[LimitInfo, ...]


class LimitLift(msgspec.Struct, frozen=True):
    """The limit that the code declares, which applies again; null: there is none."""

    scope: str
    limit: LimitInfo | None


class OperationList(msgspec.Struct, frozen=True):
    """Operations on many jobs, the newest first."""

    operations: tuple[BulkOperation, ...]


class WorkerList(msgspec.Struct, frozen=True):
    """The workers that are present."""

    workers: tuple[WorkerInfo, ...]


class LogLines(msgspec.Struct, frozen=True):
    """The lines that a job's handler logged."""

    logs: tuple[LogEntry, ...]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A call that changed something or was refused: who called, what, when, and its status."""

    timestamp: datetime
    request_id: str
    key_id: str
    key_name: str
    role: str
    namespace: str
    action: str
    target: str
    detail: str = ""
    client: str = ""
    status: int | None = None
    """None while the call runs, or when the server stopped during it."""
    count: int = 1
    """How many calls the entry stands for: refused ones are counted by key and address."""


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Audit entries, newest first."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None


class HealthBody(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the service is healthy."""

    status: str
    checks: dict[str, str] = {}
