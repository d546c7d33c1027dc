"""The errors of holdfast, their messages and data."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta

import pytest

from holdfast import errors
from holdfast.errors import (
    DuplicateError,
    Fault,
    HoldfastError,
    IllegalTransitionError,
    JobCancelledError,
    MissingExtraError,
    NotFoundError,
    PermanentError,
    QuotaError,
    RateLimitedError,
    SchemaVersionError,
    StaleLeaseError,
    StoreUnavailableError,
    TaskError,
    TemporaryError,
    ValidationError,
    WaitForChildren,
)

SAMPLES: list[tuple[HoldfastError, str]] = [
    (
        ValidationError([Fault("a", "X", "must be b"), Fault("c", "Y", "is required")]),
        "a must be b; c is required",
    ),
    (
        DuplicateError("k", "job-1"),
        "idempotency_key 'k' was used with another payload by job job-1",
    ),
    (QuotaError("queues", current=10, maximum=9), "queues limit of 9 reached (now 10)"),
    (RateLimitedError("busy", retry_after=2), "busy"),
    (
        QuotaError("queue depth", current=10, maximum=9, retry_after=timedelta(seconds=1.5)),
        "queue depth limit of 9 reached (now 10), retry after 1.5 s",
    ),
    (NotFoundError("job-1"), "no job with id 'job-1'"),
    (NotFoundError("nightly", "schedule"), "no schedule with name 'nightly'"),
    (
        IllegalTransitionError("job-1", "FAILED", "claim", "RUNNING"),
        "job job-1: claim cannot take it from FAILED to RUNNING",
    ),
    (
        StaleLeaseError("job-1"),
        "job job-1: this lease is no longer the newest, nothing was written",
    ),
    (StoreUnavailableError("no answer"), "no answer"),
    (
        MissingExtraError("redis", "redis"),
        "package 'redis' is not installed: pip install 'holdfast-queue[redis]'",
    ),
    (
        SchemaVersionError(9, 3),
        "schema version 9 is newer than this holdfast knows (3): upgrade holdfast",
    ),
    (TemporaryError("later", retry_after=1.5, code="BUSY"), "later"),
    (PermanentError("never", code="BAD"), "never"),
    (JobCancelledError("job-1", "too late"), "job job-1 was cancelled: too late"),
    (JobCancelledError("job-1"), "job job-1 was cancelled"),
]


@pytest.mark.parametrize(("error", "text"), SAMPLES, ids=lambda value: type(value).__name__)
def test_the_message_of_an_error_is_one_line(error: HoldfastError, text: str) -> None:
    assert text == str(error)


@pytest.mark.parametrize(("error", "text"), SAMPLES, ids=lambda value: type(value).__name__)
def test_an_error_can_be_copied_and_sent_to_another_process(
    error: HoldfastError, text: str
) -> None:
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(error) is type(twin)
        assert text == str(twin)
        assert vars(error) == vars(twin)


def test_every_error_is_a_holdfast_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    raised = [kind for kind in kinds if issubclass(kind, BaseException)]

    assert len(raised) >= 15
    assert [WaitForChildren] == [kind for kind in raised if not issubclass(kind, HoldfastError)]


@pytest.mark.req("M-11")
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        (2, timedelta(seconds=2)),
        ("PT3M", timedelta(minutes=3)),
        (timedelta(minutes=1), timedelta(minutes=1)),
    ],
)
def test_a_handler_may_set_the_time_of_the_retry(given: object, kept: timedelta | None) -> None:
    error = TemporaryError("busy", retry_after=given, code="BUSY")

    assert (kept, "busy", "BUSY") == (error.retry_after, error.message, error.code)
    assert isinstance(error, TaskError)


@pytest.mark.req("M-11")
@pytest.mark.parametrize("given", ["soon", '"', float("inf"), float("nan"), [3]])
def test_a_time_of_the_retry_that_is_no_duration_is_an_error(given: object) -> None:
    with pytest.raises(ValueError, match="retry_after must be seconds, a timedelta or"):
        TemporaryError("busy", retry_after=given)


def test_a_fault_reads_as_a_sentence() -> None:
    assert "max_attempts must be positive" == str(Fault("max_attempts", "X", "must be positive"))


@pytest.mark.req("M-2")
def test_duplicate_of_a_deleted_job_gives_the_reason() -> None:
    known, gone = DuplicateError("k", "j"), DuplicateError("k", "j", deleted=True)

    assert "idempotency_key 'k' was used with another payload by job j" == str(known)
    assert f"{known}, which was deleted; the key holds until its window ends" == str(gone)
    assert (False, True) == (known.existing_job_deleted, gone.existing_job_deleted)


def test_error_lists_a_hundred_faults_and_how_many_more() -> None:
    error = ValidationError([Fault(f"x{n}", "INVALID", "is wrong") for n in range(105)])

    assert 100 == len(error.faults)
    assert str(error).endswith("x99 is wrong; and 5 more")


def test_rate_limit_without_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="retry_after must be given"):
        RateLimitedError("busy", retry_after=None)  # type: ignore[arg-type]
