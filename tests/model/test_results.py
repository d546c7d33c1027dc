"""The results of operations, made from a job and its history."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.job import Failure, FailureCategory, LogLine, Progress, State, attempts
from holdfast.model.payload import encode_result
from holdfast.model.profiles import DOCUMENT, document_metadata
from holdfast.model.results import (
    AttemptResult,
    SubmissionStatus,
    attempt_info,
    submission_result,
)
from holdfast.model.status import (
    MILLISECOND,
    FailureInfo,
    JobPayload,
    JobStatus,
    LogEntry,
    ResultStatus,
    StateTransition,
    job_payload,
    job_status,
)
from holdfast.model.submission import Defaults
from tests.model.making import LATER, NOW, PERMANENT, in_state, job, running

TIMEOUT = Failure(category=FailureCategory.TIMEOUT, message="took too long")


def test_submission_result_names_the_time_a_job_waits_for() -> None:
    delayed = job(delay=60)

    assert submission_result(delayed).scheduled_for == delayed.due_at
    assert submission_result(job()).status is SubmissionStatus.ACCEPTED


@pytest.mark.parametrize("state", list(State))
def test_status_reports_the_state_and_a_worker_only_while_it_runs(state: State) -> None:
    status = job_status(in_state(state))

    assert state is status.state
    assert ("w1" if state is State.RUNNING else None) == status.worker_id


def test_completed_job_reports_its_decoded_result() -> None:
    done = lifecycle.completed(running(), result=b'{"sent":2}', now=LATER)

    result = job_status(done).result

    assert result is not None
    assert (ResultStatus.SUCCESS, {"sent": 2}) == (result.status, result.output)
    assert (LATER - NOW) / MILLISECOND == result.duration_ms
    assert {"sent": 2} == job_status(done).output
    assert job_status(done, with_result=False).output is None


def test_completed_job_without_a_result_reports_null() -> None:
    result = job_status(lifecycle.completed(running(), result=None, now=LATER)).result

    assert result is not None
    assert result.output is None


def test_job_that_never_started_reports_no_duration() -> None:
    cancelled = lifecycle.cancel_requested(job(delay=60), reason="", force=False, now=LATER)

    result = job_status(cancelled).result

    assert result is not None
    assert (ResultStatus.FAILURE, None) == (result.status, result.duration_ms)


def test_status_carries_the_history_and_the_document_on_request() -> None:
    made = running()
    document = running(defaults=Defaults(profile=DOCUMENT))

    edges = tuple(StateTransition.of(edge) for edge in made.trail)
    assert edges == job_status(made, history=list(made.trail)).history
    assert job_status(made).document is None
    assert document_metadata(document) == job_status(document).document


@pytest.mark.parametrize(
    ("failure", "result"),
    [
        (None, AttemptResult.SUCCESS),
        (PERMANENT, AttemptResult.FAILURE),
        (TIMEOUT, AttemptResult.TIMEOUT),
    ],
)
def test_attempt_reports_how_it_ended(failure: Failure | None, result: AttemptResult) -> None:
    run = running()
    ended = (
        lifecycle.completed(run, result=None, now=LATER)
        if failure is None
        else lifecycle.after_failure(run, failure, now=LATER, jitter=0.5)
    )

    assert [result] == [attempt_info(a).result for a in attempts(ended.id, list(ended.trail))]


def test_attempt_reports_a_run_that_continues_was_given_back_or_cancelled() -> None:
    run = running()
    given_back = lifecycle.given_back(run, now=LATER)
    requested = lifecycle.cancel_requested(run, reason="", force=False, now=NOW)
    cancelled = lifecycle.cancelled(requested, now=LATER)

    def result(of: object) -> AttemptResult:
        return attempt_info(attempts("x", list(of.trail))[-1]).result  # type: ignore[attr-defined]

    assert AttemptResult.RUNNING is result(run)
    assert AttemptResult.RELEASED is result(given_back)
    assert AttemptResult.CANCELLED is result(cancelled)


def test_scheduled_for_of_a_ready_job_is_when_it_became_ready() -> None:
    assert job_status(job()).scheduled_for == NOW
    assert job_status(job(delay=timedelta(seconds=5))).scheduled_for == NOW + timedelta(seconds=5)


def test_progress_and_log_lines_name_their_times() -> None:
    reported = replace(running(), progress=Progress(50, "half", LATER))

    progress = job_status(reported).progress

    assert progress is not None
    assert ("half", LATER) == (progress.message, progress.updated_at)
    assert LATER == LogEntry.of(LogLine(LATER, "INFO", "line", 1)).timestamp


def test_failure_shows_its_code_and_message_as_text() -> None:
    failure = Failure(category=FailureCategory.PERMANENT, code="KeyError", message="'x'")

    assert str(failure) == str(FailureInfo.of(failure)) == "KeyError: 'x'"


@pytest.mark.req("M-12")
def test_result_of_bytes_is_marked_and_comes_back_from_json() -> None:
    done = lifecycle.completed(running(), encode_result(b"\x00\xff"), now=LATER)
    text = lifecycle.completed(running(), encode_result("AP8="), now=LATER)

    status = job_status(done)
    body = msgspec.json.encode(status)

    assert b'"output":"AP8=","output_encoding":"base64"' in body
    assert b'"output":"AP8=","output_encoding":"json"' in msgspec.json.encode(job_status(text))
    assert b"\x00\xff" == status.output == msgspec.json.decode(body, type=JobStatus).output


def test_payload_is_a_json_value_or_bytes() -> None:
    text = job(payload={"n": [1]})
    data = job(payload=b"\0\xff")
    foreign = replace(text, payload=b"not json")

    assert JobPayload(job_id=text.id, payload={"n": [1]}) == job_payload(text)
    for each in (data, foreign):
        expected = JobPayload(job_id=each.id, payload=each.payload, payload_encoding="base64")
        assert expected == job_payload(each) == job_payload(each, as_text=True)


def test_json_of_a_job_that_is_sent_on_stays_text() -> None:
    done = lifecycle.completed(running(), b"[1.10]", now=LATER)

    sent = msgspec.json.encode([job_status(done, as_text=True), job_payload(done, as_text=True)])

    assert b'"output":[1.10],"output_encoding":"json"' in sent
    assert b'"payload":' + done.payload in sent
