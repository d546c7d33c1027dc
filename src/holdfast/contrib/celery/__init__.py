"""Code written for Celery, over holdfast: change the import, keep the tasks.

``from holdfast.contrib.celery import Celery, shared_task, chain, group, chord``. What is not
supported raises ``UnsupportedError`` and names what to use instead.
"""

from __future__ import annotations

from holdfast.contrib.celery.app import Celery, shared_task
from holdfast.contrib.celery.canvas import CelerySignature as Signature
from holdfast.contrib.celery.canvas import chain, chord, group, signature
from holdfast.contrib.celery.current import current_app
from holdfast.contrib.celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Retry,
    TaskFailureError,
    TaskRevokedError,
    UnsupportedError,
)
from holdfast.contrib.celery.results import AsyncResult, EagerResult, GroupResult
from holdfast.contrib.celery.schedules import crontab, schedule
from holdfast.contrib.celery.task import CeleryTask as Task
from holdfast.contrib.celery.utils.log import get_task_logger

subtask = signature

__all__ = [
    "AsyncResult",
    "Celery",
    "EagerResult",
    "GroupResult",
    "Ignore",
    "MaxRetriesExceededError",
    "Reject",
    "Retry",
    "Signature",
    "Task",
    "TaskFailureError",
    "TaskRevokedError",
    "UnsupportedError",
    "chain",
    "chord",
    "crontab",
    "current_app",
    "get_task_logger",
    "group",
    "schedule",
    "shared_task",
    "signature",
    "subtask",
]
