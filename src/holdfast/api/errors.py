"""Errors as a status and a JSON body."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.errors import (
    DuplicateError,
    ExecutionTimeoutError,
    ForbiddenError,
    HoldfastError,
    NotFoundError,
    QuotaError,
    StaleLeaseError,
    StoreUnavailableError,
    UnauthorizedError,
    ValidationError,
)

STATUS_OF = {
    "INVALID_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "REQUEST_TIMEOUT": 408,
    "DUPLICATE": 409,
    "STALE_LEASE": 409,
    "EXECUTION_TIMEOUT": 409,
    "TOO_LARGE": 413,
    "URI_TOO_LONG": 414,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "MISDIRECTED": 421,
    "QUOTA_EXCEEDED": 429,
    "HEADERS_TOO_LARGE": 431,
    "INTERNAL_ERROR": 500,
    "UNAVAILABLE": 503,
}
MEANING = {
    "INVALID_REQUEST": "The request breaks one or more rules; details lists all of them.",
    "UNAUTHORIZED": "No API key was given, or it is unknown, revoked or expired.",
    "FORBIDDEN": "The role of this API key does not allow the call.",
    "NOT_FOUND": "There is no such job or page, or this API key may not see it.",
    "METHOD_NOT_ALLOWED": "This path accepts other methods, see the Allow header.",
    "REQUEST_TIMEOUT": "The headers or the body of the request did not arrive in time.",
    "DUPLICATE": "The idempotency key belongs to a job with another payload.",
    "STALE_LEASE": "The lease is no longer the newest on this job; nothing was written.",
    "EXECUTION_TIMEOUT": "The attempt is past its deadline and failed as TIMEOUT; stop it.",
    "TOO_LARGE": "The body of the request is larger than the service accepts.",
    "URI_TOO_LONG": "Path and query are longer than the service accepts.",
    "UNSUPPORTED_MEDIA_TYPE": "A body must be application/json, uncompressed.",
    "MISDIRECTED": "The Host header names no address of this machine.",
    "QUOTA_EXCEEDED": "A limit on rate or amount is reached; Retry-After is the time to wait.",
    "HEADERS_TOO_LARGE": "The headers are too many or larger than the service accepts.",
    "INTERNAL_ERROR": "The service failed; its log has details under the request id.",
    "UNAVAILABLE": "The store cannot be reached, or the service is full or stops; repeat the call.",
}


class ErrorDetail(msgspec.Struct, frozen=True):
    """One thing that is wrong with a request."""

    field: str
    code: str
    message: str


class APIError(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong: a code for programs and a message for people."""

    code: str
    message: str
    details: tuple[ErrorDetail, ...] = ()
    request_id: str = ""
    existing_job_id: str | UnsetType = UNSET
    """With DUPLICATE: the job that has the idempotency key."""
    existing_job_deleted: bool | UnsetType = UNSET
    """With DUPLICATE: whether that job was deleted; its key holds until its window ends."""
    limit: str | UnsetType = UNSET
    """With QUOTA_EXCEEDED: the name of the limit, its use, its maximum and when to retry."""
    current: int | UnsetType = UNSET
    maximum: int | UnsetType = UNSET
    retry_after: timedelta | UnsetType = UNSET


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: APIError


class RequestError(Exception):
    """A request that is refused before an operation begins."""

    def __init__(self, code: str, message: str = "", *, allow: str = "") -> None:
        self.code = code
        self.allow = allow
        super().__init__(message or MEANING[code])


def error_body(error: BaseException) -> tuple[int, APIError]:
    """Return the status and body of an error; an unexpected one reveals nothing internal."""
    body = _body(error)
    return STATUS_OF[body.code], body


def _body(error: BaseException) -> APIError:
    match error:
        case RequestError():
            return APIError(code=error.code, message=str(error))
        case ValidationError():
            details = tuple(ErrorDetail(f.field, f.code, f.message) for f in error.faults)
            return APIError(code="INVALID_REQUEST", message=str(error), details=details)
        case DuplicateError():
            return APIError(
                code="DUPLICATE",
                message=str(error),
                existing_job_id=error.existing_job_id,
                existing_job_deleted=error.existing_job_deleted,
            )
        case QuotaError():
            return _quota(error)
        case _:
            code = _CODES.get(type(error), "INTERNAL_ERROR")
            own = isinstance(error, HoldfastError) and code != "INTERNAL_ERROR"
            return APIError(code=code, message=str(error) if own else MEANING[code])


_CODES: dict[type[BaseException], str] = {
    NotFoundError: "NOT_FOUND",
    StaleLeaseError: "STALE_LEASE",
    ExecutionTimeoutError: "EXECUTION_TIMEOUT",
    StoreUnavailableError: "UNAVAILABLE",
    UnauthorizedError: "UNAUTHORIZED",
    ForbiddenError: "FORBIDDEN",
    TimeoutError: "UNAVAILABLE",
}


def _quota(error: QuotaError) -> APIError:
    return APIError(
        code="QUOTA_EXCEEDED",
        message=str(error),
        limit=error.limit,
        current=error.current,
        maximum=error.maximum,
        retry_after=UNSET if error.retry_after is None else error.retry_after,
    )
