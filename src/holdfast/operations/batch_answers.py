"""Answers to the submissions of a batch, some of which may be rejected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.errors import DuplicateError, Fault, ValidationError
from holdfast.model.results import BatchResult, SubmissionResult, SubmissionStatus

Rejected = ValidationError | DuplicateError


def batch_answer(results: Sequence[SubmissionResult]) -> BatchResult:
    """Return the answer to a batch from those to its jobs."""
    refused = sum(result.status is SubmissionStatus.REJECTED for result in results)
    return BatchResult(
        total=len(results),
        accepted=len(results) - refused,
        rejected=refused,
        results=tuple(results),
    )


def job_answer(
    answer: Callable[[], SubmissionResult], job_id: str, place: int, *, atomic: bool
) -> SubmissionResult:
    """Return the answer to one job; what rejects one of an atomic batch rejects the batch."""
    try:
        return answer()
    except ValidationError as error:
        if atomic:
            raise ValidationError(
                [Fault(f"jobs[{place}].{f.field}", f.code, f.message) for f in error.faults]
            ) from None
        return rejected(job_id, error)
    except DuplicateError as error:
        if atomic:
            raise
        return rejected(job_id, error)


def rejected(job_id: str, error: Rejected | None) -> SubmissionResult:
    """Return the answer to a job that was not accepted."""
    return SubmissionResult(
        job_id=job_id,
        status=SubmissionStatus.REJECTED,
        state=None,
        existing_job_id=error.existing_job_id if isinstance(error, DuplicateError) else None,
        error=error,
    )
