"""A durable job queue: one job model, one set of promises, four stores.

Names are imported when they are first used, so that ``holdfast --help`` starts fast.
"""

from __future__ import annotations

import importlib
import typing

from holdfast.runtime.version import __version__

if typing.TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.client import Client, SyncClient
    from holdfast.errors import (
        DuplicateError,
        HoldfastError,
        JobCancelledError,
        JobFailedError,
        NotFoundError,
        PermanentError,
        QuotaError,
        RateLimitedError,
        StaleLeaseError,
        StoreError,
        StoreUnavailableError,
        TemporaryError,
        ValidationError,
        WaitForChildren,
    )
    from holdfast.model.children import ChildJob
    from holdfast.model.deduplication import Deduplication
    from holdfast.model.job import DependencyKind, FailureCategory, Priority, State
    from holdfast.model.policy import Backoff, BackoffKind, Limits, Retention
    from holdfast.model.profiles import Profile
    from holdfast.model.results import SubmissionResult, SubmissionStatus
    from holdfast.model.status import JobStatus
    from holdfast.model.submission import Submission
    from holdfast.observe.current import CurrentJob, current_job
    from holdfast.observe.records import JobLogFilter
    from holdfast.store import LimitRule
    from holdfast.tasks.context import JobContext, SyncJobContext
    from holdfast.tasks.depends import Depends
    from holdfast.tasks.middleware import AttemptCall, AttemptOutcome, Middleware
    from holdfast.tasks.schedule import MissedRuns
    from holdfast.tasks.task import Task
    from holdfast.worker import Worker


_MODULES = {
    "app": ("Holdfast",),
    "client": ("Client", "SyncClient"),
    "tasks.context": ("JobContext", "SyncJobContext"),
    "observe.current": ("CurrentJob", "current_job"),
    "observe.records": ("JobLogFilter",),
    "tasks.depends": ("Depends",),
    "tasks.middleware": ("AttemptCall", "AttemptOutcome", "Middleware"),
    "tasks.schedule": ("MissedRuns",),
    "errors": (
        "DuplicateError",
        "HoldfastError",
        "JobCancelledError",
        "JobFailedError",
        "NotFoundError",
        "PermanentError",
        "QuotaError",
        "RateLimitedError",
        "StaleLeaseError",
        "StoreError",
        "StoreUnavailableError",
        "TemporaryError",
        "ValidationError",
        "WaitForChildren",
    ),
    "model.children": ("ChildJob",),
    "model.submission": ("Submission",),
    "model.deduplication": ("Deduplication",),
    "model.job": ("DependencyKind", "FailureCategory", "Priority", "State"),
    "model.policy": ("Backoff", "BackoffKind", "Limits", "Retention"),
    "model.profiles": ("Profile",),
    "model.results": ("SubmissionResult", "SubmissionStatus"),
    "model.status": ("JobStatus",),
    "store": ("LimitRule",),
    "tasks.task": ("Task",),
    "worker": ("Worker",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AttemptCall",
    "AttemptOutcome",
    "Backoff",
    "BackoffKind",
    "ChildJob",
    "Client",
    "CurrentJob",
    "Deduplication",
    "DependencyKind",
    "Depends",
    "DuplicateError",
    "FailureCategory",
    "Holdfast",
    "HoldfastError",
    "JobCancelledError",
    "JobContext",
    "JobFailedError",
    "JobLogFilter",
    "JobStatus",
    "LimitRule",
    "Limits",
    "Middleware",
    "MissedRuns",
    "NotFoundError",
    "PermanentError",
    "Priority",
    "Profile",
    "QuotaError",
    "RateLimitedError",
    "Retention",
    "StaleLeaseError",
    "State",
    "StoreError",
    "StoreUnavailableError",
    "Submission",
    "SubmissionResult",
    "SubmissionStatus",
    "SyncClient",
    "SyncJobContext",
    "Task",
    "TemporaryError",
    "ValidationError",
    "WaitForChildren",
    "Worker",
    "__version__",
    "current_job",
]

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"holdfast.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
