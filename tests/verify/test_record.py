"""A job's own record: what is possible is accepted, what is impossible is reported."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.job import Event, FailureCategory, Job, State, Transition
from holdfast.verify import Kind, violations
from tests.conformance.hand import failure, make

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _later(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def _running(job: Job | None = None, at: int = 1) -> Job:
    job = job or make("a", now=NOW, max_attempts=3)
    return lifecycle.claimed(job, token=f"t{at}", worker="w", now=_later(at))


def _done() -> Job:
    return lifecycle.completed(_running(), b"1", now=_later(2))


def _eventful() -> Job:
    """A job whose history has nearly every event."""
    job = lifecycle.after_failure(_running(), failure(), now=_later(2))
    job = lifecycle.due(job, now=_later(4))
    job = lifecycle.lease_lost(_running(job, 5), now=_later(40))
    job = lifecycle.resumed(job, now=_later(50))
    job = lifecycle.given_back(job, now=_later(51))
    job = lifecycle.after_failure(
        _running(job, 52), failure(FailureCategory.PERMANENT), now=_later(53)
    )
    job = lifecycle.reopened(job, now=_later(54), reset_attempts=True)
    return lifecycle.completed(_running(job, 55), b"1", now=_later(56))


def _checked(job: Job, *history: Transition) -> list[tuple[Kind, str]]:
    return [(found.kind, found.text) for found in violations(job, history or job.trail)]


@pytest.mark.parametrize("job", [make("a", now=NOW), _running(), _done(), _eventful()])
def test_true_history_is_sound(job: Job) -> None:
    assert [] == _checked(job)


def test_job_without_a_history_is_reported() -> None:
    assert ["has no history"] == [found.text for found in violations(_done(), [])]


def _forged(**by_event: dict[str, object]) -> list[tuple[Kind, str]]:
    """The history of a completed job (submit, enqueue, claim, complete) with edges changed."""
    job = _done()
    positions = {"submit": 0, "enqueue": 1, "claim": 2, "complete": 3}
    edges = list(job.trail)
    for event, changes in by_event.items():
        edges[positions[event]] = replace(edges[positions[event]], **changes)
    return _checked(job, *edges)


def test_missing_submission_is_reported() -> None:
    job = _done()

    assert (Kind.RECORD, "begins with enqueue instead of submit") in _checked(job, *job.trail[1:])


def test_second_submission_is_reported() -> None:
    job = _done()

    assert (Kind.RECORD, "was submitted twice") in _checked(job, job.trail[0], *job.trail)


def test_unknown_edge_is_reported() -> None:
    assert (Kind.RECORD, "no edge leads from RUNNING to SCHEDULED") in _forged(
        complete={"to_state": State.SCHEDULED}
    )


def test_event_on_the_wrong_edge_is_reported() -> None:
    assert (Kind.RECORD, "retry does not lead from RUNNING to COMPLETED") in _forged(
        complete={"event": Event.RETRY}
    )


def test_gap_in_the_path_is_reported() -> None:
    job = _done()
    edges = [job.trail[0], *job.trail[2:]]

    assert (Kind.RECORD, "claim starts at SCHEDULED, but the job was PENDING") in _checked(
        job, *edges
    )


def test_time_running_backwards_is_reported() -> None:
    assert (Kind.RECORD, "complete is older than claim before it") in _forged(complete={"at": NOW})


def test_claim_after_the_end_is_reported() -> None:
    job = _done()
    again = replace(job.trail[2], from_state=State.COMPLETED, lease_version=2, attempt=2)

    assert (Kind.CLAIMED_AFTER_END, "claim after it was COMPLETED") in _checked(
        job, *job.trail, again
    )


def test_second_claim_while_the_first_is_open_is_reported() -> None:
    job = _done()
    again = replace(job.trail[2], lease_version=2, attempt=2)
    edges = [*job.trail[:3], again, replace(job.trail[3], lease_version=2, attempt=2)]

    assert (Kind.DOUBLE_LEASE, "claimed again while claim 1 was open") in _checked(job, *edges)


@pytest.mark.parametrize("version", [0, 2])
def test_claim_that_skips_or_repeats_a_version_is_reported(version: int) -> None:
    assert (Kind.TOKEN_NOT_GROWING, f"claim {version} follows claim 0") in _forged(
        claim={"lease_version": version}
    )


def test_claim_without_a_worker_is_reported() -> None:
    assert (Kind.RECORD, "claim 1 names no worker") in _forged(claim={"worker": ""})


def test_outcome_under_an_older_claim_is_reported() -> None:
    assert (Kind.STALE_WRITE, "complete under claim 0, but the newest was 1") in _forged(
        complete={"lease_version": 0}
    )


def test_attempt_counted_twice_is_reported() -> None:
    assert (Kind.RECORD, "claim leads from attempt 0 to 2") in _forged(
        claim={"attempt": 2}, complete={"attempt": 2}
    )


def test_attempt_counted_although_given_back_is_reported() -> None:
    job = lifecycle.given_back(_running(), now=_later(2))
    edges = [*job.trail[:3], *(replace(edge, attempt=1) for edge in job.trail[3:])]

    assert (Kind.RECORD, "give_back leads from attempt 1 to 1") in _checked(
        replace(job, attempt=1), *edges
    )


def test_attempts_beyond_the_limit_are_reported() -> None:
    assert (Kind.TOO_MANY_STARTS, "reached attempt 1 of 0") in _checked(
        replace(_done(), max_attempts=0)
    )


def test_state_that_disagrees_with_the_history_is_reported() -> None:
    job = replace(_done(), state=State.RUNNING)

    assert (Kind.RECORD, "is RUNNING, but its history ends with COMPLETED") in _checked(job)


def test_counts_that_disagree_with_the_history_are_reported() -> None:
    job = replace(_done(), attempt=2)

    assert (Kind.RECORD, "is at attempt 2, claim 1, unlike its history") in _checked(job)


def test_generation_without_a_reopening_is_reported() -> None:
    job = replace(_done(), generation=2)

    assert (Kind.RECORD, "is generation 2, but was reopened 0 times") in _checked(job)


def test_end_at_a_different_time_is_reported() -> None:
    job = replace(_done(), finished_at=NOW)

    assert (Kind.RECORD, "did not finish at its last transition") in _checked(job)


def test_other_change_after_the_end_is_reported() -> None:
    job = _done()
    again = replace(job.trail[3], event=Event.CANCEL, from_state=State.COMPLETED)

    assert (Kind.TERMINAL_CHANGED, "cancel after it was COMPLETED") in _checked(
        job, *job.trail, again
    )


def test_overwritten_end_is_reported() -> None:
    job = _done()

    assert Kind.TERMINAL_CHANGED in {kind for kind, _ in _checked(job, *job.trail, job.trail[3])}


def test_retry_after_a_cancel_request_is_reported() -> None:
    requested = lifecycle.cancel_requested(_running(), reason="", force=False, now=_later(2))
    forged = lifecycle.after_failure(replace(requested, cancel=None), failure(), now=_later(3))

    assert [(Kind.CANCEL_IGNORED, "was asked to stop, but retry followed")] == _checked(
        replace(forged, cancel=requested.cancel)
    )


def test_end_after_a_cancel_request_is_sound() -> None:
    requested = lifecycle.cancel_requested(_running(), reason="", force=False, now=_later(2))

    assert [] == _checked(lifecycle.completed(requested, b"1", now=_later(3)))
    assert [] == _checked(lifecycle.lease_lost(requested, now=_later(3)))


def test_clocks_may_be_apart_by_the_slack() -> None:
    job = _done()
    early = replace(job.trail[3], at=_later(0))
    moved = replace(job, finished_at=early.at)
    history = [*job.trail[:3], early]

    assert [] == violations(moved, history, slack=timedelta(seconds=1))
    assert [] != violations(moved, history, slack=timedelta(milliseconds=999))
