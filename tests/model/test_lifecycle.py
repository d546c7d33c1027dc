"""What each event does to a job."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.dependencies import WAIT, Verdict
from holdfast.model.job import (
    Event,
    Failure,
    FailureCategory,
    Job,
    Priority,
    State,
    attempt_limit,
)
from holdfast.model.policy import Backoff, BackoffKind
from tests.model.making import LATER, NOW, PERMANENT, TEMPORARY, in_state, job, running

SECOND = timedelta(seconds=1)


@pytest.mark.req("M-3")
def test_a_step_counts_the_revision_and_keeps_an_audit_record() -> None:
    before = running(worker="host-1-a")

    after = lifecycle.completed(before, b'"done"', now=LATER)

    edge = after.trail[-1]
    assert before.revision + 1 == after.revision
    assert LATER == after.updated_at == after.finished_at == edge.at
    assert (Event.COMPLETE, "handler returned", 1, 1, "host-1-a", None) == (
        edge.event,
        edge.reason,
        edge.attempt,
        edge.lease_version,
        edge.worker,
        edge.failure,
    )
    assert before.trail == after.trail[:-1]


@pytest.mark.req("M-3")
def test_a_job_that_is_not_due_is_delayed_until_it_is() -> None:
    waiting = replace(job(hold=True), due_at=LATER)

    early = lifecycle.enqueued(waiting, now=LATER - SECOND)
    on_time = lifecycle.enqueued(waiting, now=LATER)

    assert State.DELAYED == early.state
    assert early.scheduled_at is None
    assert "due at 2026-01-15T10:31:00Z" == early.trail[-1].reason
    assert (State.SCHEDULED, LATER) == (on_time.state, on_time.scheduled_at)
    assert (State.SCHEDULED, LATER) == (
        lifecycle.due(early, now=LATER).state,
        lifecycle.due(early, now=LATER).scheduled_at,
    )


@pytest.mark.req("S-5", "M-7")
def test_a_claim_counts_the_attempt_and_gives_a_new_lease() -> None:
    first = lifecycle.claimed(job(lease=30), token="t1", worker="w1", now=LATER)
    again = lifecycle.claimed(
        lifecycle.due(lifecycle.after_failure(first, TEMPORARY, now=LATER), now=LATER),
        token="t2",
        worker="w2",
        now=LATER,
    )

    assert (1, "t1", 1, "w1", LATER + 30 * SECOND) == (first.attempt, *_lease(first))
    assert LATER == first.started_at
    assert (2, "t2", 2, "w2", LATER + 30 * SECOND) == (again.attempt, *_lease(again))


def _lease(held: Job) -> tuple[object, ...]:
    assert held.lease is not None
    return held.lease.token, held.lease.version, held.lease.worker, held.lease.until


def test_completing_stores_the_result_and_clears_the_last_failure() -> None:
    retried = lifecycle.due(in_state(State.RETRYING), now=LATER)
    second = lifecycle.claimed(retried, token="t2", worker="w", now=LATER)
    assert second.failure is not None

    done = lifecycle.completed(second, b"42", now=LATER)

    assert (State.COMPLETED, b"42", None) == (done.state, done.result, done.failure)


@pytest.mark.req("M-11")
@pytest.mark.parametrize(
    ("category", "after_first", "after_last"),
    [
        ("TEMPORARY", State.RETRYING, State.DEAD_LETTER),
        ("SYSTEM", State.RETRYING, State.DEAD_LETTER),
        ("TIMEOUT", State.RETRYING, State.DEAD_LETTER),
        ("PERMANENT", State.FAILED, State.FAILED),
        ("CANCELLED", State.CANCELLED, State.CANCELLED),
    ],
)
def test_the_category_of_a_failure_decides_what_follows(
    category: str, after_first: State, after_last: State
) -> None:
    failure = Failure(category=FailureCategory(category), message="broke")

    first = lifecycle.after_failure(running(max_attempts=2), failure, now=LATER)
    last = lifecycle.after_failure(running(max_attempts=1), failure, now=LATER)

    assert (after_first, after_last) == (first.state, last.state)
    assert category == last.failure.category
    assert first.trail[-1].failure == first.failure


@pytest.mark.req("M-6")
def test_a_timeout_is_final_when_the_job_does_not_retry_timeouts() -> None:
    failure = Failure(category=FailureCategory.TIMEOUT, message="took 31 s")

    assert (
        State.FAILED
        == lifecycle.after_failure(running(retry_timeouts=False), failure, now=LATER).state
    )


@pytest.mark.req("M-11")
def test_a_crash_is_final_when_the_job_does_not_retry_crashes() -> None:
    fragile = running(retry_crashes=False)
    crash = Failure(category=FailureCategory.SYSTEM, message="out of memory")

    failed = lifecycle.after_failure(fragile, crash, now=LATER)
    lapsed = lifecycle.lease_lost(fragile, now=LATER)

    for ended in (failed, lapsed):
        assert (State.FAILED, Event.FAIL) == (ended.state, ended.trail[-1].event)
        assert FailureCategory.SYSTEM is ended.failure.category
    assert ("LEASE_EXPIRED", "lease expired") == (lapsed.failure.code, lapsed.trail[-1].reason)


@pytest.mark.req("M-11")
@pytest.mark.parametrize("category", [FailureCategory.TEMPORARY, FailureCategory.TIMEOUT])
def test_other_failures_are_retried_when_crashes_are_not(category: FailureCategory) -> None:
    failure = Failure(category=category, message="broke")

    after = lifecycle.after_failure(running(retry_crashes=False), failure, now=LATER)

    assert State.RETRYING is after.state


@pytest.mark.req("M-7")
def test_a_retry_waits_for_the_delay_of_the_backoff() -> None:
    backoff = Backoff(strategy=BackoffKind.LINEAR, initial_delay=10 * SECOND, jitter=True)

    plain = lifecycle.after_failure(running(backoff=backoff), TEMPORARY, now=LATER)
    longer = lifecycle.after_failure(running(backoff=backoff), TEMPORARY, now=LATER, jitter=1.0)

    assert LATER + 10 * SECOND == plain.due_at
    assert LATER + 11 * SECOND == longer.due_at


@pytest.mark.req("M-7")
def test_a_custom_backoff_is_called_with_the_attempt_that_failed() -> None:
    calls: list[tuple[object, ...]] = []

    def custom(*question: object) -> timedelta:
        calls.append(question)
        return 7 * SECOND

    backoff = Backoff(strategy=BackoffKind.CUSTOM, initial_delay=SECOND, max_delay=60 * SECOND)
    after = lifecycle.after_failure(running(backoff=backoff), TEMPORARY, now=LATER, custom=custom)
    final = lifecycle.after_failure(running(backoff=backoff), PERMANENT, now=LATER, custom=custom)

    assert LATER + 7 * SECOND == after.due_at
    assert State.FAILED == final.state
    assert [(1, SECOND, 60 * SECOND)] == calls


@pytest.mark.req("M-7")
@pytest.mark.parametrize(
    ("retry_after", "delay"),
    [
        (timedelta(hours=5), timedelta(hours=5)),
        (timedelta(0), timedelta(0)),
        (-SECOND, timedelta(0)),
        (timedelta.max, timedelta(days=7)),
        (timedelta.min, timedelta(0)),
    ],
)
def test_retry_after_overrides_the_backoff_within_the_lifetime(
    retry_after: timedelta, delay: timedelta
) -> None:
    failure = replace(TEMPORARY, retry_after=retry_after)

    after = lifecycle.after_failure(running(), failure, now=LATER)

    assert (State.RETRYING, LATER + delay) == (after.state, after.due_at)


@pytest.mark.req("M-11")
def test_a_failure_is_recorded_with_time_and_worker() -> None:
    after = lifecycle.after_failure(running(worker="w9"), TEMPORARY, now=LATER)

    assert after.failure == after.trail[-1].failure
    assert (1, LATER, "w9", timedelta(minutes=1)) == (
        after.failure.attempt,
        after.failure.at,
        after.failure.worker,
        after.failure.duration,
    )


def test_measurements_of_the_worker_are_not_overwritten() -> None:
    measured = replace(TEMPORARY, duration=3 * SECOND, worker="child", host="h")

    kept = lifecycle.after_failure(running(), measured, now=LATER).failure

    assert (3 * SECOND, "child", "h") == (kept.duration, kept.worker, kept.host)


@pytest.mark.req("M-12")
def test_error_texts_are_made_storable() -> None:
    bad = "a\x00b\ud800c"
    failure = Failure(
        category=FailureCategory.PERMANENT,
        message=bad,
        code=bad,
        stack_trace=bad,
        context={bad: bad},
        host=bad,
    )

    after = lifecycle.after_failure(running(), failure, now=LATER)

    kept = after.failure
    texts = {kept.message, kept.code, kept.stack_trace, kept.host, after.trail[-1].reason}
    assert {"a\ufffdb?c"} == texts | set(kept.context) | set(kept.context.values())


def test_the_reason_in_the_history_is_a_bounded_part_of_a_long_message() -> None:
    failure = replace(PERMANENT, message="x" * 5000)

    after = lifecycle.after_failure(running(), failure, now=LATER)

    assert 5000 == len(after.failure.message)
    assert lifecycle.MAX_REASON == len(after.trail[-1].reason)


def test_the_code_of_a_failure_is_bounded() -> None:
    after = lifecycle.after_failure(running(), replace(PERMANENT, code="x" * 5000), now=LATER)

    assert lifecycle.MAX_CODE == len(after.failure.code)


@pytest.mark.req("S-10")
def test_the_history_names_the_last_attempt() -> None:
    after = lifecycle.after_failure(running(max_attempts=1), TEMPORARY, now=LATER)

    assert State.DEAD_LETTER == after.state
    assert "attempt 1 of 1 failed: try again" == after.trail[-1].reason


@pytest.mark.req("M-6")
def test_a_failure_after_the_lifetime_ends_the_job_and_is_recorded() -> None:
    held = running(lifetime=60)

    after = lifecycle.after_failure(held, TEMPORARY, now=held.expires_at)

    assert (State.DEAD_LETTER, "LIFETIME_EXCEEDED") == (after.state, after.failure.code)
    assert "not finished within its lifetime of 60 s, last failure: try again" == (
        after.failure.message
    )


@pytest.mark.req("M-6")
@pytest.mark.parametrize("state", [s for s in State if s not in lifecycle.TERMINAL])
def test_the_lifetime_ends_every_live_job(state: State) -> None:
    before = in_state(state)

    after = lifecycle.lifetime_over(before, now=before.expires_at)

    assert State.DEAD_LETTER == after.state
    assert (FailureCategory.TIMEOUT, before.expires_at) == (
        after.failure.category,
        after.failure.at,
    )
    assert ("w1" if state is State.RUNNING else "") == after.failure.worker
    assert after.failure.message.startswith("not finished within its lifetime of 604800 s")


@pytest.mark.req("S-6", "S-10")
def test_a_job_with_an_expired_lease_is_due_within_a_quarter_of_a_second() -> None:
    soonest = lifecycle.lease_lost(running(), now=LATER, jitter=-1.0)
    latest = lifecycle.lease_lost(running(), now=LATER, jitter=1.0)

    assert (State.RETRYING, LATER) == (soonest.state, soonest.due_at)
    assert LATER + SECOND / 4 == latest.due_at
    assert (Event.LAPSE, "lease expired") == (latest.trail[-1].event, latest.trail[-1].reason)
    assert (FailureCategory.SYSTEM, "LEASE_EXPIRED") == (
        latest.failure.category,
        latest.failure.code,
    )


@pytest.mark.req("S-10")
def test_a_job_whose_lease_always_expires_becomes_a_dead_letter() -> None:
    after = lifecycle.lease_lost(running(max_attempts=1), now=LATER)

    assert (State.DEAD_LETTER, FailureCategory.SYSTEM) == (after.state, after.failure.category)
    assert "attempt 1 of 1 failed: lease expired" == after.trail[-1].reason


@pytest.mark.req("S-5")
def test_a_late_outcome_is_accepted_until_the_job_is_claimed_again_or_ends() -> None:
    lapsed = lifecycle.lease_lost(running(token="t1"), now=LATER)
    queued = lifecycle.due(lapsed, now=LATER)
    taken = lifecycle.claimed(queued, token="t2", worker="w2", now=LATER)
    buried = lifecycle.lease_lost(running(token="t1", max_attempts=1), now=LATER)
    expired = lifecycle.lifetime_over(running(token="t1"), now=LATER)
    stopped = lifecycle.cancelled(lapsed, now=LATER)

    assert lifecycle.may_answer(running(token="t1"), "t1")
    assert lifecycle.may_answer(lapsed, "t1")
    assert lifecycle.may_answer(queued, "t1")
    assert not lifecycle.may_answer(queued, "t2")
    assert not lifecycle.may_answer(job(), "t1")
    for over in (taken, buried, expired, stopped):
        assert not lifecycle.may_answer(over, "t1")
        assert not lifecycle.has_answered(over, "t1")


@pytest.mark.req("S-5")
@pytest.mark.parametrize(
    "answered",
    [
        lifecycle.completed(running(), None, now=LATER),
        lifecycle.after_failure(running(), TEMPORARY, now=LATER),
        lifecycle.after_failure(running(), PERMANENT, now=LATER),
        lifecycle.after_failure(running(max_attempts=1), TEMPORARY, now=LATER),
        lifecycle.after_failure(running(lifetime=1), TEMPORARY, now=LATER),
        lifecycle.given_back(running(), now=LATER),
        lifecycle.given_back(
            lifecycle.cancel_requested(running(), reason="", force=False, now=NOW), now=LATER
        ),
    ],
    ids=lambda answered: answered.trail[-1].event,
)
def test_an_outcome_is_reported_once_and_a_repeat_is_recognised(answered: Job) -> None:
    assert lifecycle.has_answered(answered, "t1")
    assert not lifecycle.may_answer(answered, "t1")
    assert not lifecycle.has_answered(answered, "t0")


@pytest.mark.req("S-5")
def test_outcome_of_an_expired_lease_is_accepted_after_resuming() -> None:
    lapsed = lifecycle.lease_lost(running(), now=LATER)

    done = lifecycle.completed(lifecycle.resumed(lapsed, now=LATER), b"1", now=LATER)
    from_queue = lifecycle.resumed(lifecycle.due(lapsed, now=LATER), now=LATER)

    assert [
        (State.RUNNING, State.RETRYING),
        (State.RETRYING, State.SCHEDULED),
        (State.SCHEDULED, State.RUNNING),
        (State.RUNNING, State.COMPLETED),
    ] == [(edge.from_state, edge.to_state) for edge in done.trail[-4:]]
    assert (1, 1) == (done.attempt, done.lease_version)
    assert (State.RUNNING, 1) == (from_queue.state, from_queue.attempt)


@pytest.mark.req("S-5")
def test_only_a_holder_whose_job_was_reclaimed_needs_to_resume_it() -> None:
    held = running()
    lapsed = lifecycle.lease_lost(held, now=LATER)

    assert lifecycle.held_again(held, now=LATER) is held
    assert lifecycle.resumed(lapsed, now=LATER) == lifecycle.held_again(lapsed, now=LATER)


@pytest.mark.req("M-3")
def test_a_job_given_back_is_ready_at_once_and_keeps_its_attempts() -> None:
    after = lifecycle.given_back(running(), now=LATER)

    assert (State.SCHEDULED, 0, LATER) == (after.state, after.attempt, after.scheduled_at)
    assert [State.RETRYING, State.SCHEDULED] == [edge.to_state for edge in after.trail[-2:]]
    assert "worker is stopping" == after.trail[-2].reason
    assert 2 == lifecycle.claimed(after, token="t2", worker="w", now=LATER).lease_version


@pytest.mark.req("A-12")
def test_cancelling_ends_a_waiting_job_and_records_a_request_on_a_running_one() -> None:
    waiting = lifecycle.cancel_requested(job(), reason="not needed", force=False, now=LATER)
    noted = lifecycle.cancel_requested(running(), reason="not needed", force=False, now=LATER)

    assert (State.CANCELLED, "not needed") == (waiting.state, waiting.trail[-1].reason)
    assert (FailureCategory.CANCELLED, "not needed") == (
        waiting.failure.category,
        waiting.failure.message,
    )
    assert State.RUNNING == noted.state
    assert ("not needed", False, LATER) == (
        noted.cancel.reason,
        noted.cancel.force,
        noted.cancel.at,
    )
    assert running().revision + 1 == noted.revision


@pytest.mark.req("A-12")
def test_force_once_requested_stays() -> None:
    forced = lifecycle.cancel_requested(running(), reason="", force=True, now=NOW)
    again = lifecycle.cancel_requested(forced, reason="bad\x00text", force=False, now=LATER)

    assert ("cancelled", True) == (forced.cancel.reason, forced.cancel.force)
    assert ("bad\ufffdtext", True) == (again.cancel.reason, again.cancel.force)


@pytest.mark.req("A-11")
@pytest.mark.parametrize("state", sorted(lifecycle.TERMINAL))
def test_an_ended_job_cannot_be_cancelled(state: State) -> None:
    ended = in_state(state)

    assert ended is lifecycle.cancel_requested(ended, reason="late", force=True, now=LATER)


@pytest.mark.req("A-12")
@pytest.mark.parametrize(
    "event",
    [
        lambda held: lifecycle.after_failure(held, TEMPORARY, now=LATER),
        lambda held: lifecycle.lease_lost(held, now=LATER),
        lambda held: lifecycle.given_back(held, now=LATER),
    ],
    ids=["failure", "expiry", "give back"],
)
def test_a_request_to_cancel_survives_whatever_would_retry_the_job(event) -> None:
    held = lifecycle.cancel_requested(running(), reason="stop it", force=False, now=NOW)

    after = event(held)

    assert (State.CANCELLED, "stop it") == (after.state, after.trail[-1].reason)


@pytest.mark.req("A-12")
def test_a_job_that_finishes_before_it_sees_the_request_is_completed() -> None:
    held = lifecycle.cancel_requested(running(), reason="stop it", force=True, now=NOW)

    after = lifecycle.completed(held, b"1", now=LATER)

    assert (State.COMPLETED, b"1") == (after.state, after.result)
    assert held.cancel == after.cancel


@pytest.mark.req("M-11")
def test_a_handler_that_cancels_itself_gives_the_reason() -> None:
    failure = Failure(category=FailureCategory.CANCELLED, message="no longer wanted")

    after = lifecycle.after_failure(running(), failure, now=LATER)

    assert (State.CANCELLED, "no longer wanted") == (after.state, after.trail[-1].reason)
    assert "cancelled" == lifecycle.cancelled(job(), now=LATER).trail[-1].reason


@pytest.mark.req("M-9")
@pytest.mark.parametrize("outcome", [State.FAILED, State.DEAD_LETTER, State.CANCELLED])
def test_a_dependent_ends_like_its_dependency(outcome: State) -> None:
    waiting = replace(job(hold=True), held=False)

    after = lifecycle.dependency_ended(waiting, Verdict(outcome, "dependency a ended"), now=LATER)

    assert (outcome, "dependency a ended") == (after.state, after.trail[-1].reason)
    assert "DEPENDENCY_ENDED" == after.failure.code
    assert LATER == after.finished_at
    assert (outcome is State.CANCELLED) == (after.failure.category is FailureCategory.CANCELLED)


@pytest.mark.req("M-9")
def test_a_dependent_follows_the_verdict_unless_it_is_held() -> None:
    waiting = replace(job(hold=True), held=False)
    run = Verdict(State.SCHEDULED, "all dependencies completed")

    after = lifecycle.dependency_ended(waiting, run, now=LATER)
    later = lifecycle.dependency_ended(replace(waiting, due_at=LATER + SECOND), run, now=LATER)

    assert (State.SCHEDULED, run.reason) == (after.state, after.trail[-1].reason)
    assert State.DELAYED == later.state
    assert waiting is lifecycle.dependency_ended(waiting, WAIT, now=LATER)
    held = job(hold=True)
    assert held is lifecycle.dependency_ended(held, run, now=LATER)


@pytest.mark.req("L-2")
def test_releasing_a_held_job_queues_it_or_makes_it_wait_for_its_dependencies() -> None:
    free = lifecycle.released(job(hold=True), now=LATER)
    bound = lifecycle.released(replace(job(hold=True), depends_on=("a",)), now=LATER)

    assert (State.SCHEDULED, False, "released") == (free.state, free.held, free.trail[-1].reason)
    assert (State.PENDING, False, 1) == (bound.state, bound.held, bound.revision)


@pytest.mark.req("L-2")
def test_releasing_a_job_that_is_not_held_or_no_longer_waits_changes_nothing() -> None:
    queued = job()
    cancelled = lifecycle.cancelled(replace(job(hold=True), depends_on=("a",)), now=NOW)

    assert queued is lifecycle.released(queued, now=LATER)
    assert cancelled is lifecycle.released(cancelled, now=LATER)


@pytest.mark.req("A-16")
def test_a_manual_retry_opens_a_new_generation_with_one_further_attempt() -> None:
    dead = in_state(State.DEAD_LETTER)

    after = lifecycle.reopened(dead, now=LATER)

    assert (State.SCHEDULED, LATER, 2) == (after.state, after.scheduled_at, after.generation)
    assert (1, 1, 2) == (after.attempt, after.max_attempts, attempt_limit(after))
    assert (None, None) == (after.finished_at, after.due_at)
    assert LATER + dead.lifetime == after.expires_at
    claimed = lifecycle.claimed(after, token="t2", worker="w", now=LATER)
    assert (2, 2) == (claimed.attempt, claimed.lease_version)


@pytest.mark.req("A-16", "M-7")
def test_the_attempt_that_a_retry_grants_is_the_last_and_a_reset_restores_the_limit() -> None:
    granted = lifecycle.claimed(
        lifecycle.reopened(in_state(State.DEAD_LETTER), now=LATER),
        token="t2",
        worker="w",
        now=LATER,
    )

    again = lifecycle.after_failure(granted, TEMPORARY, now=LATER)
    reset = lifecycle.reopened(again, now=LATER, reset_attempts=True)

    assert State.DEAD_LETTER is again.state
    assert again.trail[-1].reason.startswith("attempt 2 of 2 failed")
    assert 2 == attempt_limit(again)
    assert (0, 1) == (reset.attempt, attempt_limit(reset))


@pytest.mark.req("A-16")
def test_a_manual_retry_can_reset_attempts_change_priority_and_wait() -> None:
    failed = in_state(State.FAILED, max_attempts=5)

    after = lifecycle.reopened(
        failed, now=LATER, reset_attempts=True, priority=Priority.HIGH, delay=10 * SECOND
    )

    assert (State.DELAYED, 0, 5, Priority.HIGH) == (
        after.state,
        after.attempt,
        after.max_attempts,
        after.priority,
    )
    assert (LATER + 10 * SECOND, None) == (after.due_at, after.scheduled_at)
    assert LATER + 10 * SECOND + failed.lifetime == after.expires_at


@pytest.mark.req("A-16", "M-9")
@pytest.mark.parametrize("state", [State.FAILED, State.DEAD_LETTER])
def test_a_reopened_job_with_dependencies_waits_for_them_before_its_delay(state: State) -> None:
    failed = lifecycle.replace(in_state(state), depends_on=("p",))

    waiting = lifecycle.reopened(failed, now=LATER, delay=SECOND)
    met = Verdict(State.SCHEDULED, "all dependencies completed")
    free = lifecycle.dependency_ended(waiting, met, now=LATER)

    assert (State.PENDING, LATER + SECOND, None) == (
        waiting.state,
        waiting.due_at,
        waiting.scheduled_at,
    )
    assert State.DELAYED is free.state


@pytest.mark.req("A-16")
def test_remaining_attempts_are_kept_and_a_past_delay_is_none() -> None:
    after = lifecycle.reopened(in_state(State.FAILED, max_attempts=5), now=LATER, delay=-SECOND)

    assert (1, 5, State.SCHEDULED) == (after.attempt, after.max_attempts, after.state)
    assert LATER + after.lifetime == after.expires_at


@pytest.mark.req("A-16", "S-5")
def test_leases_of_the_old_generation_are_invalid_in_the_new_one() -> None:
    lost = lifecycle.lease_lost(running(token="t1", max_attempts=1), now=LATER)
    held = lifecycle.lifetime_over(job(hold=True), now=LATER)

    again = lifecycle.reopened(lost, now=LATER)
    free = lifecycle.reopened(held, now=LATER)

    assert not lifecycle.may_answer(again, "t1")
    assert not lifecycle.has_answered(again, "t1")
    assert 1 == again.lease_version
    assert (None, False, State.SCHEDULED) == (free.lease, free.held, free.state)


@pytest.mark.req("A-16")
def test_a_manual_retry_drops_the_request_to_cancel() -> None:
    wished = lifecycle.cancel_requested(running(), reason="stop", force=False, now=NOW)
    dead = lifecycle.lifetime_over(wished, now=LATER)

    assert lifecycle.reopened(dead, now=LATER).cancel is None


@pytest.mark.req("M-11")
def test_retryable_is_true_for_failures_that_are_retried() -> None:
    retried = {
        category: lifecycle.retryable(job(), Failure(category=category, message=""))
        for category in FailureCategory
    }

    assert {
        FailureCategory.TEMPORARY: True,
        FailureCategory.SYSTEM: True,
        FailureCategory.TIMEOUT: True,
        FailureCategory.PERMANENT: False,
        FailureCategory.CANCELLED: False,
    } == retried


NOT_YET = Failure(
    category=FailureCategory.TEMPORARY,
    message="not yet",
    retry_after=timedelta(minutes=1),
    uses_attempt=False,
)


@pytest.mark.req("M-11")
def test_a_run_that_only_waits_uses_up_no_attempt() -> None:
    before = running(max_attempts=1)

    after = lifecycle.after_failure(before, NOT_YET, now=LATER)

    assert (State.RETRYING, 0, None) == (after.state, after.attempt, after.failure)
    assert LATER + timedelta(minutes=1) == after.due_at
    assert (Event.GIVE_BACK, "not yet") == (after.trail[-1].event, after.trail[-1].reason)


@pytest.mark.req("M-6")
def test_a_run_that_only_waits_ends_with_the_lifetime_of_its_job() -> None:
    before = running()

    after = lifecycle.after_failure(before, NOT_YET, now=before.expires_at)

    assert State.DEAD_LETTER is after.state
