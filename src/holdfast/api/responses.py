"""The other response bodies of the API: pages, lists, audit entries, health."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.api.jobs import JobBody
from holdfast.model import results
from holdfast.model.job import LogLine
from holdfast.model.workers import WorkerInfo
from holdfast.store import QueueInfo


class JobSearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs."""

    jobs: tuple[JobBody, ...]
    total_count: int
    total_exact: bool
    next_cursor: str | None
    has_more: bool

    @classmethod
    def of(cls, page: results.SearchResult, *, traces: bool = True) -> JobSearchResult:
        """Return the body for a page."""
        return cls(
            jobs=tuple(JobBody.of(job, traces=traces) for job in page.jobs),
            total_count=page.total_count,
            total_exact=page.total_exact,
            next_cursor=page.next_cursor,
            has_more=page.has_more,
        )

    def value(self) -> results.SearchResult:
        """Return the library's value."""
        return results.SearchResult(
            jobs=tuple(job.value() for job in self.jobs),
            total_count=self.total_count,
            total_exact=self.total_exact,
            next_cursor=self.next_cursor,
            has_more=self.has_more,
        )


class QueueList(msgspec.Struct, frozen=True):
    """Every queue."""

    queues: tuple[QueueInfo, ...]


class QueueState(msgspec.Struct, frozen=True):
    """Whether a queue is paused."""

    queue: str
    paused: bool


class WorkerList(msgspec.Struct, frozen=True):
    """The workers that are present."""

    workers: tuple[WorkerInfo, ...]


class LogLines(msgspec.Struct, frozen=True):
    """The lines that a job's handler logged."""

    logs: tuple[LogLine, ...]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A call that changed something: who called, what, when, and its status."""

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


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Audit entries, newest first."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None


class HealthBody(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the service is healthy."""

    status: str
    checks: dict[str, str] = {}
