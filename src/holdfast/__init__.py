"""A durable job queue: one job model, one set of promises, four stores."""

from holdfast.app import Holdfast
from holdfast.context import JobContext, SyncJobContext
from holdfast.cron import MissedRuns
from holdfast.errors import (
    DuplicateError,
    HoldfastError,
    JobCancelledError,
    NotFoundError,
    PermanentError,
    QuotaError,
    StaleLeaseError,
    StoreUnavailableError,
    TemporaryError,
    ValidationError,
)
from holdfast.form import Submission
from holdfast.job import DependencyKind, FailureCategory, Priority, State
from holdfast.policy import Backoff, BackoffKind, Limits, Retention
from holdfast.profiles import Profile
from holdfast.results import JobStatus, SubmissionResult, SubmissionStatus
from holdfast.store import LimitRule
from holdfast.task import Task
from holdfast.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "BackoffKind",
    "DependencyKind",
    "DuplicateError",
    "FailureCategory",
    "Holdfast",
    "HoldfastError",
    "JobCancelledError",
    "JobContext",
    "JobStatus",
    "LimitRule",
    "Limits",
    "MissedRuns",
    "NotFoundError",
    "PermanentError",
    "Priority",
    "Profile",
    "QuotaError",
    "Retention",
    "StaleLeaseError",
    "State",
    "StoreUnavailableError",
    "Submission",
    "SubmissionResult",
    "SubmissionStatus",
    "SyncJobContext",
    "Task",
    "TemporaryError",
    "ValidationError",
    "Worker",
    "__version__",
]
