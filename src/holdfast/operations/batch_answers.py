"""Answers to the submissions of a batch, some of which may be rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from holdfast.errors import MAX_FAULTS, DuplicateError, Fault, ValidationError
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
            raise refused_batch({place: error}) from None
        return rejected(job_id, error)
    except DuplicateError as error:
        if atomic:
            raise
        return rejected(job_id, error)


def refused_batch(refused: Mapping[int, ValidationError]) -> ValidationError:
    """Return the error of an atomic batch from those of its jobs, by their places."""
    faults = (
        Fault(f"jobs[{place}].{fault.field}", fault.code, fault.message)
        for place, error in refused.items()
        for fault in error.faults
    )
    count = sum(error.count for error in refused.values())
    return ValidationError(list(islice(faults, MAX_FAULTS)), count=count)


def shortened(refused: Mapping[int, ValidationError]) -> dict[int, ValidationError]:
    """Return errors that have their first fault each, and together only so many others."""
    left, errors = MAX_FAULTS, {}
    for place, error in refused.items():
        first = error.faults[: 1 + left]
        left -= len(first) - 1
        errors[place] = ValidationError(first, count=error.count)
    return errors


def rejected(job_id: str, error: Rejected | None) -> SubmissionResult:
    """Return the answer to a job that was not accepted."""
    return SubmissionResult(
        job_id=job_id,
        status=SubmissionStatus.REJECTED,
        state=None,
        existing_job_id=error.existing_job_id if isinstance(error, DuplicateError) else None,
        error=error,
    )
