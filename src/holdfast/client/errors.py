"""Error responses of a service as the library's own exceptions, by their code."""

from __future__ import annotations

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
            kind = NotFoundError if error.code == "NOT_FOUND" else StaleLeaseError
            return kind(job_id)
        case _:
            kinds = {
                "UNAUTHORIZED": UnauthorizedError,
                "FORBIDDEN": ForbiddenError,
                "UNAVAILABLE": StoreUnavailableError,
            }
            return kinds.get(error.code, ServiceError)(f"{error.message} ({error.request_id})")


def _quota(error: APIError) -> QuotaError:
    return QuotaError(
        error.limit or "unknown",
        current=error.current or 0,
        maximum=error.maximum or 0,
        retry_after=error.retry_after or None,
    )
