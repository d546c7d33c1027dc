"""``self.request``: what a running task knows of its call."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from holdfast.runtime.host import HOST
from holdfast.tasks.context import SyncJobContext


@dataclass(frozen=True, kw_only=True)
class CeleryRequest:
    """The call that a task runs for. ``called_directly`` when no worker runs it."""

    id: str | None = None
    task: str = ""
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    retries: int = 0
    headers: Mapping[str, str] | None = None
    correlation_id: str | None = None
    delivery_info: Mapping[str, object] = field(default_factory=dict)
    called_directly: bool = True
    is_eager: bool = False
    context: SyncJobContext | None = None
    """The context of the job in holdfast; None without a worker."""

    @property
    def root_id(self) -> str | None:
        """The correlation id, which all jobs of a workflow share."""
        return self.correlation_id or self.id

    @property
    def hostname(self) -> str:
        """The host that the task runs on."""
        return HOST

    def get(self, name: str, default: object = None) -> Any:
        """Return a field by name."""
        return getattr(self, name, default)


NOTHING = CeleryRequest()
current: ContextVar[CeleryRequest] = ContextVar("holdfast_celery_request", default=NOTHING)
"""The request of the task that runs in this thread."""
