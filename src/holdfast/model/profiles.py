"""Named bundles of defaults, each with the vocabulary in which it reports states.

A queue runs under a profile. Everything in it can be overridden per queue, handler and job.
A vocabulary is a projection of the canonical state, never a second state machine.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum

import msgspec

from holdfast.model.job import (
    TERMINAL,
    Failure,
    FailureCategory,
    Job,
    Priority,
    State,
    attempt_limit,
)
from holdfast.model.policy import DAY, HOUR, MINUTE, SECOND, Backoff, BackoffKind

RENEWALS_PER_LEASE = 3


class ErrorType(StrEnum):
    """Whether an error may be retried, in the document vocabulary."""

    RETRYABLE = "RETRYABLE"
    TERMINAL = "TERMINAL"


class ProfileValues(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a profile that is kept in the store."""

    name: str
    max_attempts: int = 3
    backoff: Backoff = Backoff()
    lease: timedelta = 15 * SECOND
    """The shortest at which no job ran twice beside frozen processes and pausing stores."""
    timeout: timedelta = 30 * MINUTE
    lifetime: timedelta = 7 * DAY
    priority: Priority = Priority.NORMAL


class Profile(ProfileValues, frozen=True, kw_only=True):
    """Defaults for the jobs of a queue."""

    word: Callable[[Job], str]
    """The state of a job in this profile's vocabulary."""

    @property
    def heartbeat(self) -> timedelta:
        """The time between two renewals of a lease."""
        return self.lease / RENEWALS_PER_LEASE

    @property
    def values(self) -> ProfileValues:
        """The part that is kept in the store."""
        return ProfileValues(**{name: getattr(self, name) for name in _VALUES})


_VALUES = ProfileValues.__struct_fields__


def canonical(job: Job) -> str:
    """Return the state under its own name."""
    return job.state


def lease_word(job: Job) -> str:
    """Return Ready, InFlight, Succeeded or Failed."""
    match job.state:
        case State.RUNNING:
            return "InFlight"
        case State.COMPLETED:
            return "Succeeded"
        case State.FAILED | State.DEAD_LETTER | State.CANCELLED:
            return "Failed"
        case _:
            return "Ready"


def document_word(job: Job) -> str:
    """Return CREATED, QUEUED, RUNNING, RETRYING, SUCCEEDED or FAILED."""
    match job.state:
        case State.PENDING:
            return "CREATED"
        case State.SCHEDULED | State.DELAYED:
            return "QUEUED"
        case State.COMPLETED:
            return "SUCCEEDED"
        case State.DEAD_LETTER | State.CANCELLED:
            return "FAILED"
        case _:
            return job.state


def bullmq_word(job: Job) -> str:
    """Return the list or set in which BullMQ would hold the job."""
    match job.state:
        case State.PENDING:
            return "waiting-children" if job.depends_on else "waiting"
        case State.SCHEDULED:
            return "prioritized" if job.priority else "waiting"
        case State.DELAYED | State.RETRYING:
            return "delayed"
        case State.RUNNING:
            return "active"
        case State.COMPLETED:
            return "completed"
        case _:
            return "failed"


class DocumentMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job as the document vocabulary describes it."""

    retry_count: int
    max_retries: int
    last_error: str | None
    error_type: ErrorType | None


def document_metadata(job: Job) -> DocumentMetadata:
    """Report retries and the last error in the document vocabulary.

    A retry counts from the failure that causes it, so also while the job waits for it.
    """
    begun = job.state is State.RUNNING or job.state in TERMINAL
    return DocumentMetadata(
        retry_count=max(0, job.attempt - 1) if begun else job.attempt,
        max_retries=attempt_limit(job) - 1,
        last_error=job.failure.message if job.failure else None,
        error_type=_error_type(job, job.failure) if job.failure else None,
    )


def _error_type(job: Job, failure: Failure) -> ErrorType:
    final = failure.category in (FailureCategory.PERMANENT, FailureCategory.CANCELLED)
    ended = job.state in (State.FAILED, State.CANCELLED)
    return ErrorType.TERMINAL if final or ended else ErrorType.RETRYABLE


STANDARD = Profile(name="standard", word=canonical)

LEASE = Profile(
    name="lease",
    max_attempts=4,
    backoff=Backoff(
        strategy=BackoffKind.FULL_JITTER, initial_delay=SECOND / 2, max_delay=30 * SECOND
    ),
    lease=5 * SECOND,
    timeout=5 * MINUTE,
    word=lease_word,
)

DOCUMENT = Profile(
    name="document",
    max_attempts=4,
    backoff=Backoff(strategy=BackoffKind.CONSTANT, max_delay=SECOND),
    lease=30 * SECOND,
    word=document_word,
)

BULLMQ = Profile(
    name="bullmq",
    backoff=Backoff(strategy=BackoffKind.EXPONENTIAL, max_delay=HOUR),
    lease=30 * SECOND,
    priority=Priority.CRITICAL,
    word=bullmq_word,
)

PROFILES = {profile.name: profile for profile in (STANDARD, LEASE, DOCUMENT, BULLMQ)}


def profile_named(given: Profile | str) -> Profile:
    """Return the profile of a name; ValueError lists the known names."""
    if isinstance(given, Profile):
        return given
    if given not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {given!r}")
    return PROFILES[given]


def stored_profile(values: ProfileValues) -> Profile:
    """Return the profile of stored values; an unknown name uses the words of the standard one."""
    word = PROFILES.get(values.name, STANDARD).word
    return Profile(**msgspec.structs.asdict(values), word=word)
