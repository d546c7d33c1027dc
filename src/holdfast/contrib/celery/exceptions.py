"""The exceptions of Celery that tasks raise or catch, and the one for what is not supported."""

from __future__ import annotations

import builtins

from holdfast.errors import HoldfastError

EXPIRED = "CELERY_EXPIRED"
"""The code of the failure of a task that expired before it started."""

TimeoutError = builtins.TimeoutError  # noqa: A001  # Celery's name for it


class UnsupportedError(HoldfastError):
    """Something of Celery that this layer does not have; the message names what to use."""

    def __init__(self, what: str, instead: str) -> None:
        self.what = what
        self.instead = instead
        super().__init__(f"{what} is not supported: {instead}")


class Retry(HoldfastError):
    """Raised by ``self.retry``: the task runs again after ``when`` seconds."""

    def __init__(self, message: str, exc: BaseException | None, when: float) -> None:
        self.message = message
        self.exc = exc
        self.when = when
        super().__init__(message)


class MaxRetriesExceededError(HoldfastError):
    """The task was retried as often as ``max_retries`` allows."""


class Ignore(HoldfastError):
    """Raised by a task that ends without a result and without a failure."""


class Reject(HoldfastError):
    """Raised by a task that does not want its message: it fails, or runs again with ``requeue``."""

    def __init__(self, reason: str = "", *, requeue: bool = False) -> None:
        self.reason = reason
        self.requeue = requeue
        super().__init__(reason or "rejected")


class TaskRevokedError(HoldfastError):
    """The task was cancelled, or expired before it started."""


class TaskFailureError(HoldfastError):
    """A task failed with an exception whose class is not known here; ``code`` names the class."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"{code}: {message}" if code else message)


__all__ = [
    "Ignore",
    "MaxRetriesExceededError",
    "Reject",
    "Retry",
    "TaskFailureError",
    "TaskRevokedError",
    "TimeoutError",
    "UnsupportedError",
]
