"""Which metadata of a submitted job changes, when, and by which rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from holdfast.errors import ValidationError
from holdfast.model.amendment import Amendment, metadata_submission, read_amendment
from holdfast.model.job import TERMINAL, Job, State
from holdfast.model.results import UpdateStatus
from tests.model.making import job as make_job

pytestmark = pytest.mark.req("M-13")
URL = "https://example.com/done"
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def _read(**metadata: object) -> Amendment:
    return read_amendment(metadata_submission(metadata), NOW)


@pytest.fixture
def job() -> Job:
    return replace(
        make_job(), tags={"holdfast:owner": "me", "a": "1"}, correlation_id="c", callback_url=URL
    )


def test_only_given_metadata_changes(job: Job) -> None:
    amended = _read(correlation_id="d", priority="HIGH", tags=None).applied(job)

    assert replace(job, revision=job.revision + 1, correlation_id="d", priority=1) == amended


def test_tags_replace_all_but_those_of_holdfast(job: Job) -> None:
    assert {"b": "2", "holdfast:owner": "me"} == _read(tags={"b": "2"}).applied(job).tags
    assert {"holdfast:owner": "me"} == _read(tags={}).applied(job).tags


def test_empty_text_removes(job: Job) -> None:
    amended = _read(correlation_id="", callback_url="").applied(job)

    assert ("", "") == (amended.correlation_id, amended.callback_url)


def test_equal_metadata_is_no_change(job: Job) -> None:
    same = _read(tags={"a": "1"}, correlation_id="c", callback_url=URL, priority=job.priority)

    assert same.applied(job) is job
    assert _read().applied(job) is job


@pytest.mark.parametrize("state", list(State))
def test_priority_changes_while_a_job_waits_and_the_callback_until_it_has_ended(
    job: Job, state: State
) -> None:
    job = replace(job, state=state)
    waits = state in (State.PENDING, State.SCHEDULED, State.DELAYED, State.RETRYING)

    assert _read(tags={}, correlation_id="x").refused(job) is None
    assert _read(priority=job.priority, callback_url=URL).refused(job) is None
    assert (None if waits else UpdateStatus.NOT_WAITING) == _read(priority="BULK").refused(job)
    ended = UpdateStatus.ENDED if state in TERMINAL else None
    assert ended == _read(callback_url="").refused(job)


def test_faults_are_those_of_a_submission() -> None:
    with pytest.raises(ValidationError) as error:
        _read(
            tags={"": "x"}, correlation_id="\0", callback_url="ftp://x", priority="URGENT", type="x"
        )

    assert {
        "type": "UNKNOWN_FIELD",
        "tags.": "INVALID",
        "correlation_id": "INVALID_TEXT",
        "callback_url": "INVALID",
        "priority": "INVALID",
    } == {fault.field: fault.code for fault in error.value.faults}


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ({"delay": 0}, NOW),
        ({"delay": "PT5M"}, NOW + timedelta(minutes=5)),
        ({"scheduled_at": "2026-11-19T00:00:00Z"}, datetime(2026, 11, 19, tzinfo=UTC)),
        ({}, None),
    ],
)
def test_due_time_is_a_delay_from_now_or_an_instant(
    job: Job, given: dict[str, object], due: datetime | None
) -> None:
    amendment = _read(**given)

    assert due == amendment.due_at
    assert (due or job.due_at) == amendment.applied(job).due_at


@pytest.mark.parametrize("state", list(State))
def test_due_time_changes_until_a_job_is_ready(job: Job, state: State) -> None:
    waits = state in (State.PENDING, State.DELAYED, State.RETRYING)

    refused = _read(delay=5).refused(replace(job, state=state))

    assert (None if waits else UpdateStatus.NOT_WAITING) == refused


def test_due_time_falls_within_the_lifetime(job: Job) -> None:
    end = job.expires_at
    (fault,) = _read(scheduled_at=end + timedelta(seconds=1)).faults(job)

    assert ("scheduled_at", "BEYOND_LIFETIME") == (fault.field, fault.code)
    assert [] == _read(scheduled_at=end).faults(job) == _read(priority="LOW").faults(job)


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({"delay": -1}, {"delay": "INVALID_DURATION"}),
        ({"scheduled_at": "soon"}, {"scheduled_at": "INVALID_TIMESTAMP"}),
        ({"delay": 1, "scheduled_at": NOW}, {"scheduled_at": "CONFLICT"}),
        (
            {"delay": "x", "priority": "URGENT"},
            {"delay": "INVALID_DURATION", "priority": "INVALID"},
        ),
    ],
)
def test_wrong_due_time_is_named(given: dict[str, object], faults: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as error:
        _read(**given)

    assert faults == {fault.field: fault.code for fault in error.value.faults}
