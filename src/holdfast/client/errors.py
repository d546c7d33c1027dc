"""Errors of a service as the library's own, by their code."""

from __future__ import annotations

import msgspec

from holdfast.api.errors import APIError, ErrorResponse
from holdfast.client.transport import Response
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
from holdfast.model.policy import SECOND


def error_of(response: Response, *, job_id: str = "", key: str = "") -> HoldfastError:
    """Return what an answer that is no success means."""
    try:
        told = msgspec.json.decode(response.body, type=ErrorResponse).error
    except msgspec.DecodeError:
        return ServiceError(f"status {response.status} without a reason: is this a holdfast?")
    match told.code:
        case "INVALID_REQUEST":
            return ValidationError([Fault(d.field, d.code, d.message) for d in told.details])
        case "DUPLICATE":
            return DuplicateError(key, told.existing_job_id or "")
        case "QUOTA_EXCEEDED":
            return _quota(told)
        case "NOT_FOUND" | "STALE_LEASE":
            kind = NotFoundError if told.code == "NOT_FOUND" else StaleLeaseError
            return kind(job_id)
        case _:
            kinds = {
                "UNAUTHORIZED": UnauthorizedError,
                "FORBIDDEN": ForbiddenError,
                "UNAVAILABLE": StoreUnavailableError,
            }
            return kinds.get(told.code, ServiceError)(f"{told.message} ({told.request_id})")


def _quota(told: APIError) -> QuotaError:
    return QuotaError(
        told.limit or "unknown",
        current=told.current or 0,
        maximum=told.maximum or 0,
        retry_after=told.retry_after or SECOND,
    )
