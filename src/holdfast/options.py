"""What may be said about a job besides its type and payload, as typed keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from holdfast.job import DependencyKind, Priority
from holdfast.policy import Backoff
from holdfast.timing import Moment, Span


class SubmitOptions(TypedDict, total=False):
    """Keyword arguments of ``submit``; see ``Submission`` for what each means."""

    queue: str
    priority: Priority | str | int
    delay: Span
    scheduled_at: Moment
    hold: bool
    timeout: Span
    lifetime: Span
    lease: Span
    max_attempts: int
    backoff: Backoff | Mapping[str, object]
    retry_timeouts: bool
    idempotency_key: str
    idempotency_window: Span
    correlation_id: str
    tags: Mapping[str, str]
    depends_on: Sequence[str]
    dependency_type: DependencyKind | str
    callback_url: str
    limit_key: str
