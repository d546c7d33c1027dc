"""Error responses of a service as the library's own exceptions, by their code."""

from __future__ import annotations

import re

import msgspec

from holdfast.api.errors import APIError, ErrorResponse
from holdfast.client.transport import ServiceResponse
from holdfast.errors import (
    DuplicateError,
    Fault,
    ForbiddenError,
    HoldfastError,
    NotFoundError,
    QuotaError,
    ServiceError,
    StaleLeaseError,
    StoreUnavailableError,
    UnauthorizedError,
    ValidationError,
)

_KIND = re.compile(r"no ([\w ]{1,20}) with (?:id|name) ")
"""How the message of a NotFoundError begins, with the kind of what is not there."""


def error_from(response: ServiceResponse, *, job_id: str = "", key: str = "") -> HoldfastError:
    """Return the exception that a response without success stands for."""
    try:
        error = msgspec.json.decode(response.body, type=ErrorResponse).error
    except msgspec.DecodeError:
        return ServiceError(
            f"status {response.status} without an error body: is this a holdfast service?"
        )
    match error.code:
        case "INVALID_REQUEST":
            return ValidationError([Fault(d.field, d.code, d.message) for d in error.details])
        case "DUPLICATE":
            deleted = error.existing_job_deleted is True
            return DuplicateError(key, error.existing_job_id or "", deleted=deleted)
        case "QUOTA_EXCEEDED":
            return _quota(error)
        case "NOT_FOUND" | "STALE_LEASE":
            return _of_one(error, job_id)
        case _:
            kinds = {
                "UNAUTHORIZED": UnauthorizedError,
                "FORBIDDEN": ForbiddenError,
                "UNAVAILABLE": StoreUnavailableError,
            }
            return kinds.get(error.code, ServiceError)(f"{error.message} ({error.request_id})")


def _of_one(error: APIError, job_id: str) -> HoldfastError:
    if error.code == "STALE_LEASE":
        return StaleLeaseError(job_id)
    named = _KIND.match(error.message)
    return NotFoundError(job_id, named[1] if named else "job")


def _quota(error: APIError) -> QuotaError:
    return QuotaError(
        error.limit or "unknown",
        current=error.current or 0,
        maximum=error.maximum or 0,
        retry_after=error.retry_after or None,
    )
