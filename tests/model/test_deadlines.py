"""The deadline of an attempt, and what ends by it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.errors import ExecutionTimeoutError, JobFailedError
from holdfast.model import lifecycle
from holdfast.model.deadlines import (
    REMOTE,
    attempt_deadline,
    has_timed_out,
    is_overdue,
    outlived_deadline,
    timeout_failure,
)
from holdfast.model.job import Job
from tests.model.making import LATER, NOW, PERMANENT, job, running

SECOND = timedelta(seconds=1)


def leased(token: str, *, lease: int, timeout: int) -> Job:
    made = replace(running(), timeout=timeout * SECOND, started_at=NOW)
    assert made.lease is not None
    return replace(made, lease=replace(made.lease, token=token, until=NOW + lease * SECOND))


@pytest.mark.req("M-6")
def test_deadline_is_the_end_of_the_timeout_or_of_the_lifetime() -> None:
    short = replace(running(), timeout=5 * SECOND, started_at=NOW)
    dying = replace(short, expires_at=NOW + 2 * SECOND)

    assert attempt_deadline(job()) is None
    assert NOW + 5 * SECOND == attempt_deadline(short)
    assert NOW + 2 * SECOND == attempt_deadline(dying)
    assert [False, False, True] == [
        is_overdue(one, NOW + 4 * SECOND) for one in (job(), short, dying)
    ]


@pytest.mark.req("M-6")
@pytest.mark.parametrize(
    ("token", "lease", "expected"),
    [(REMOTE + "t", 30, True), (REMOTE + "t", 10, False), ("t", 30, False)],
)
def test_lease_over_http_outlives_the_deadline(token: str, lease: int, expected: bool) -> None:
    assert expected is outlived_deadline(leased(token, lease=lease, timeout=20))


def test_job_without_a_lease_outlives_nothing() -> None:
    assert not outlived_deadline(job())


def test_only_an_attempt_that_ended_by_its_timeout_has_timed_out() -> None:
    run = running()
    assert run.lease is not None
    token = run.lease.token
    slow = lifecycle.after_failure(run, timeout_failure(5, "h"), now=LATER)
    broken = lifecycle.after_failure(run, PERMANENT, now=LATER)
    done = lifecycle.completed(run, None, now=LATER)

    assert [False, True, False, False, False] == [
        has_timed_out(one, token) for one in (run, slow, broken, done, job())
    ]
    assert not has_timed_out(slow, "other")


def test_error_of_a_late_outcome_names_the_timeout() -> None:
    error = ExecutionTimeoutError("j", 5 * SECOND)

    assert "job j: this attempt took longer than its timeout of 5 s" in str(error)


def test_error_of_a_job_without_a_result_names_state_and_failure() -> None:
    assert "job j ended FAILED: X: no" == str(JobFailedError("j", "FAILED", "X: no"))
    assert "job j ended CANCELLED" == str(JobFailedError("j", "CANCELLED", ""))
