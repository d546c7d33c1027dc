"""What the parts of this layer need of an app."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.app import Holdfast
from holdfast.contrib.celery.conf import Configuration
from holdfast.model.submission import Submission


class CeleryApp(Protocol):
    """An app, as its tasks, signatures and results see it."""

    conf: Configuration

    @property
    def tasks(self) -> Mapping[str, Any]:
        """The tasks by name."""
        ...

    @property
    def holdfast(self) -> Holdfast:
        """The app in holdfast."""
        ...

    def submit(self, canvas: Any) -> Any:
        """Submit a canvas and return its result."""
        ...

    def run(self, canvas: Any) -> Any:
        """Run a canvas here and now and return its result."""
        ...

    def submission(self, sig: Any) -> Submission:
        """Return the submission of one task."""
        ...

    def register_task(self, task: Any) -> Any:
        """Add a task."""
        ...

    def AsyncResult(self, task_id: str) -> Any:  # noqa: N802  # Celery's name
        """Return the result of a task by its id."""
        ...

    def exception(self, task: str, code: str, message: str) -> Exception:
        """Return the exception that a task raised."""
        ...
