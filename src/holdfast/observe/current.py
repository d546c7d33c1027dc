"""The job whose handler runs here, for the log lines that it writes."""

from __future__ import annotations

from contextvars import ContextVar

CURRENT_JOB: ContextVar[tuple[str, str, int] | None] = ContextVar("holdfast_job", default=None)
"""Id, type and attempt of the job of this task or thread."""
