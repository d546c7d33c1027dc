"""Results of submissions as JSON."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.api.errors import APIError, error_body
from holdfast.errors import DuplicateError, Fault, ValidationError
from holdfast.model import results as library
from holdfast.model.job import State


class SubmissionBody(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one submission."""

    job_id: str
    status: library.SubmissionStatus
    state: State | None = None
    created_at: datetime | None = None
    scheduled_for: datetime | None = None
    existing_job_id: str | None = None
    existing_job_deleted: bool = False
    """The job that has the key was deleted; the key holds until its window ends."""
    error: APIError | None = None
    """Why the job was rejected, in a batch that is not atomic."""
    warnings: tuple[str, ...] = ()
    """What is allowed but may harm, such as an option that keeps very many jobs."""

    @classmethod
    def of(cls, result: library.SubmissionResult) -> SubmissionBody:
        """Return the body for a result."""
        return cls(
            job_id=result.job_id,
            status=result.status,
            state=result.state,
            created_at=result.created_at,
            scheduled_for=result.scheduled_for,
            existing_job_id=result.existing_job_id,
            existing_job_deleted=result.existing_job_deleted,
            error=error_body(result.error)[1] if result.error else None,
            warnings=result.warnings,
        )

    def value(self) -> library.SubmissionResult:
        """Return the library's value."""
        return library.SubmissionResult(
            job_id=self.job_id,
            status=self.status,
            state=self.state,
            created_at=self.created_at,
            scheduled_for=self.scheduled_for,
            existing_job_id=self.existing_job_id,
            existing_job_deleted=self.existing_job_deleted,
            error=_rejection(self.error),
            warnings=self.warnings,
        )


class BatchBody(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch."""

    total: int
    accepted: int
    rejected: int
    results: tuple[SubmissionBody, ...]

    @classmethod
    def of(cls, result: library.BatchResult) -> BatchBody:
        """Return the body for a result."""
        return cls(
            total=result.total,
            accepted=result.accepted,
            rejected=result.rejected,
            results=tuple(SubmissionBody.of(one) for one in result.results),
        )

    def value(self) -> library.BatchResult:
        """Return the library's value."""
        return library.BatchResult(
            total=self.total,
            accepted=self.accepted,
            rejected=self.rejected,
            results=tuple(one.value() for one in self.results),
        )


def encodable(result: library.SubmissionResult | library.BatchResult) -> object:
    """Return the body of a result; without errors the result itself encodes to the same JSON."""
    if isinstance(result, library.BatchResult):
        return BatchBody.of(result) if result.rejected else result
    return SubmissionBody.of(result) if result.error else result


def _rejection(error: APIError | None) -> Exception | None:
    if error is None:
        return None
    if error.code == "DUPLICATE":
        deleted = error.existing_job_deleted is True
        return DuplicateError("", error.existing_job_id or "", deleted=deleted)
    return ValidationError([Fault(d.field, d.code, d.message) for d in error.details])
