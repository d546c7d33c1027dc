"""The exceptions of holdfast, as one tree."""

# HoldfastError
# ├── ValidationError         a request broke rules; carries every fault at once
# ├── DuplicateError          an idempotency key was reused with another payload
# ├── QuotaError              a limit is reached; has ``retry_after`` if waiting helps
# ├── NotFoundError           no such job
# ├── UnauthorizedError       no API key, or an invalid one
# ├── ForbiddenError          the API key's role does not allow the call
# ├── ServiceError            a service failed or sent an unexpected response
# ├── IllegalTransitionError  an edge that the lifecycle table does not have
# ├── StaleLeaseError         a write under a lease that is no longer the newest
# ├── StoreError
# │   ├── StoreUnavailableError   the store cannot be reached now; retry
# │   │   └── UnconfirmedError        jobs were written, but not confirmed
# │   ├── UnknownStoreError       no store for this URL scheme
# │   ├── MissingExtraError       the store needs a package that is not installed
# │   ├── SchemaVersionError      the stored schema is newer than this program
# │   └── UnsafeStoreError        settings under which jobs could be lost
# ├── TaskError               raised by a handler to classify its failure
# │   ├── TemporaryError          retry, after ``retry_after`` if given
# │   └── PermanentError          do not retry
# └── JobCancelledError       raised inside a handler whose job was cancelled
# BaseException
# └── WaitForChildren         ends a handler whose job waits for the jobs it spawned

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """One broken rule: the field, a code for programs, a message for people."""

    field: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.field} {self.message}"


class HoldfastError(Exception):
    """Base of every error holdfast raises. All of them can be copied and pickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.args), self.__dict__


def _rebuilt(kind: type[HoldfastError], args: tuple[object, ...]) -> HoldfastError:
    return kind.__new__(kind, *args)


MAX_FAULTS = 100
"""An error lists so many faults, and how many more there are."""


class ValidationError(HoldfastError):
    """A request broke one or more rules; nothing was written."""

    def __init__(self, faults: Sequence[Fault], *, count: int | None = None) -> None:
        """``count`` is how many faults there are when these are only the first."""
        self.faults = tuple(faults[:MAX_FAULTS])
        self.count = len(faults) if count is None else count
        more = self.count - len(self.faults)
        super().__init__("; ".join(map(str, self.faults)) + (f"; and {more} more" if more else ""))


class DuplicateError(HoldfastError):
    """The idempotency key belongs to a job with another payload; nothing was written."""

    def __init__(self, key: str, existing_job_id: str, *, deleted: bool = False) -> None:
        self.key = key
        self.existing_job_id = existing_job_id
        self.existing_job_deleted = deleted
        end = ", which was deleted; the key holds until its window ends" if deleted else ""
        super().__init__(
            f"idempotency_key {key!r} was used with another payload by job {existing_job_id}{end}"
        )


class QuotaError(HoldfastError):
    """A limit is reached; nothing was written."""

    def __init__(
        self, limit: str, *, current: int, maximum: int, retry_after: timedelta | None = None
    ) -> None:
        self.limit = limit
        self.current = current
        self.maximum = maximum
        self.retry_after = retry_after
        message = f"{limit} limit of {maximum} reached (now {current})"
        if retry_after is not None:
            message += f", retry after {retry_after.total_seconds():g} s"
        super().__init__(message)


class NotFoundError(HoldfastError):
    """There is no job with this id; or none of another ``kind``, such as a schedule."""

    def __init__(self, job_id: str, kind: str = "job") -> None:
        self.job_id = job_id
        self.kind = kind
        noun = "name" if kind in ("schedule", "worker") else "id"
        super().__init__(f"no {kind} with {noun} {job_id!r}")


class UnauthorizedError(HoldfastError):
    """No API key was given, or it is unknown, revoked or expired."""


class ForbiddenError(HoldfastError):
    """The role of the API key does not allow the call."""


class ServiceError(HoldfastError):
    """A service failed, or its response is not one of holdfast."""


class IllegalTransitionError(HoldfastError):
    """The lifecycle table has no such edge."""

    def __init__(self, job_id: str, state: str, event: str, to: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id}: {event} cannot take it from {state} to {to}")


class StaleLeaseError(HoldfastError):
    """The lease is not the newest one for this job; the write changed nothing."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id}: this lease is no longer the newest, nothing was written")


class ExecutionTimeoutError(HoldfastError):
    """The attempt is past its deadline: its outcome was refused and the job failed as TIMEOUT."""

    def __init__(self, job_id: str, timeout: timedelta) -> None:
        self.job_id = job_id
        self.timeout = timeout
        super().__init__(
            f"job {job_id}: this attempt took longer than its timeout of"
            f" {timeout.total_seconds():g} s and failed as TIMEOUT; stop working on it"
        )


class StoreError(HoldfastError):
    """A store cannot be opened or used."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached or is too busy; the call may be repeated."""


class UnconfirmedError(StoreUnavailableError):
    """Jobs were written, but not confirmed as the URL requires; repeating the call asks again."""


class UnknownStoreError(StoreError):
    """No store handles this URL scheme."""


class MissingExtraError(StoreError):
    """An optional package is not installed."""

    def __init__(self, extra: str, package: str) -> None:
        self.extra = extra
        super().__init__(
            f"package {package!r} is not installed: pip install 'holdfast-queue[{extra}]'"
        )


class SchemaVersionError(StoreError):
    """The stored schema was written by a newer holdfast."""

    def __init__(self, found: int, known: int) -> None:
        self.found = found
        self.known = known
        super().__init__(
            f"schema version {found} is newer than this holdfast knows ({known}): upgrade holdfast"
        )


class UnsafeStoreError(StoreError):
    """The store's settings could lose acknowledged jobs, and the URL does not accept that."""


class TaskError(HoldfastError):
    """Raised by a handler to classify its own failure."""

    def __init__(self, message: str, *, code: str = "") -> None:
        self.message = message
        self.code = code
        super().__init__(message)


class TemporaryError(TaskError):
    """The job is retried; ``retry_after`` (seconds, timedelta, PT3M) overrides the delay.

    With ``uses_attempt=False`` the job only waits, at least ``retry_after``, and this run does not
    count as an attempt: for a job that finds that it is too early, or that it must wait its turn.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | str | timedelta | None = None,
        code: str = "",
        uses_attempt: bool = True,
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after = _span(retry_after)
        self.uses_attempt = uses_attempt


class RateLimitedError(TemporaryError):
    """A service that the job needs refuses more calls for now, as HTTP 429 does.

    The job waits for ``retry_after``, and the run does not count as an attempt. On Redis the whole
    queue is closed for that time, and the job is the next one when it opens.
    """

    def __init__(
        self, message: str, *, retry_after: float | str | timedelta, code: str = ""
    ) -> None:
        super().__init__(message, retry_after=retry_after, code=code, uses_attempt=False)
        if self.retry_after is None:
            raise ValueError("retry_after must be given: for how long no job is started")


def _span(given: float | str | timedelta | None) -> timedelta | None:
    if given is None or isinstance(given, timedelta):
        return given
    try:
        return timedelta(seconds=given) if not isinstance(given, str) else _iso.decode(f'"{given}"')
    except (TypeError, ValueError, OverflowError, msgspec.DecodeError):
        message = "retry_after must be seconds, a timedelta or an ISO 8601 duration such as PT3M"
        raise ValueError(f"{message}, got {given!r:.60}") from None


_iso = msgspec.json.Decoder(timedelta)


class PermanentError(TaskError):
    """The job is not retried: it would fail the same way."""


class JobFailedError(HoldfastError):
    """A job has no result: it ended FAILED, DEAD_LETTER or CANCELLED."""

    def __init__(self, job_id: str, state: str, failure: str) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(f"job {job_id} ended {state}" + (f": {failure}" if failure else ""))


class JobCancelledError(HoldfastError):
    """The job was cancelled while it ran."""

    def __init__(self, job_id: str, reason: str = "") -> None:
        self.job_id = job_id
        self.reason = reason
        super().__init__(f"job {job_id} was cancelled" + (f": {reason}" if reason else ""))


class WaitForChildren(BaseException):  # not an error: it ends the handler
    """Ends a handler whose job waits for the jobs it spawned; do not catch it.

    Not an ``Exception``, so that a handler's ``except Exception`` does not stop it.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__("the job waits for the jobs it spawned")
