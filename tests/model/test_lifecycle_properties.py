"""Invariants of every job, whatever happens in whatever order."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from holdfast.errors import IllegalTransitionError
from holdfast.model import lifecycle
from holdfast.model.dependencies import Verdict
from holdfast.model.job import TERMINAL, Event, Failure, FailureCategory, Job, State, attempts
from tests.model import making
from tests.model.making import NOW

JITTER = st.floats(-1.0, 1.0)
SPANS = st.timedeltas(timedelta(0), timedelta(days=2))
ANY_SPAN = st.timedeltas()
FAILURES = st.builds(
    Failure,
    category=st.sampled_from(FailureCategory),
    message=st.text(max_size=20),
    retry_after=st.none() | ANY_SPAN,
)
VERDICTS = st.sampled_from(
    [Verdict(None), *(Verdict(s, "why") for s in (State.SCHEDULED, *sorted(TERMINAL)))]
)


class Life(RuleBasedStateMachine):
    """One job, every event in any order; a shadow counts what the job must agree with."""

    @initialize(
        max_attempts=st.integers(1, 4),
        hold=st.booleans(),
        delay=st.none() | st.integers(0, 1000),
        lifetime=st.integers(1000, 500_000),
        retry_timeouts=st.booleans(),
        retry_crashes=st.booleans(),
    )
    def submit(self, **fields: object) -> None:
        self.now = NOW
        self.job = making.job(**fields)
        self.history = list(self.job.trail)
        self.claims = 0
        self.starts = 0
        self.answered: set[str] = set()
        self.cancel_wished = False

    def become(self, after: Job) -> None:
        """Take over what an event made of the job, and check the move itself."""
        before = self.job
        added = after.trail[len(before.trail) :]
        assert before.trail == after.trail[: len(before.trail)]
        assert (after is before) or after.revision > before.revision
        assert after.revision - before.revision >= len(added)
        if before.state in TERMINAL and added:
            assert Event.REOPEN is added[0].event
            assert after.generation == before.generation + 1
        self.history += added
        self.job = after

    def attempt(self, event: str, /, **arguments: object) -> None:
        """Let an event happen, legal or not; an illegal one must change nothing."""
        function = getattr(lifecycle, event)
        try:
            after = function(self.job, now=self.now, **arguments)
        except IllegalTransitionError:
            return
        self.become(after)

    @rule(span=SPANS)
    def time_passes(self, span: timedelta) -> None:
        self.now += span

    @rule(event=st.sampled_from(["enqueued", "due", "released", "lifetime_over", "cancelled"]))
    def something_simple(self, event: str) -> None:
        self.attempt(event)

    @precondition(lambda self: self.job.state is State.SCHEDULED)
    @rule()
    def claim(self) -> None:
        self.claims += 1
        token = f"t{self.claims}"
        self.cancel_wished = False
        version = self.job.lease_version
        self.attempt("claimed", token=token, worker="w")
        assert version + 1 == self.job.lease_version == self.claims

    @rule(age=st.integers(0, 3), failure=st.none() | FAILURES, jitter=JITTER)
    def a_holder_answers(self, age: int, failure: Failure | None, jitter: float) -> None:
        """A holder, perhaps of an old lease, reports the outcome."""
        token = f"t{self.claims - age}"
        newest = age == 0 and self.claims > 0
        accepted = lifecycle.may_answer(self.job, token)
        assert accepted == (
            newest
            and token not in self.answered
            and self.job.generation == self.generation_of_claim
            and self.job.state not in TERMINAL
        )
        if not accepted:
            return
        if self.job.state is not State.RUNNING:
            self.become(lifecycle.resumed(self.job, now=self.now))
        if failure is None:
            self.attempt("completed", result=b"1")
            assert State.COMPLETED is self.job.state
        else:
            self.attempt("after_failure", failure=failure, jitter=jitter)
        self.answered.add(token)
        assert lifecycle.has_answered(self.job, token)

    @property
    def generation_of_claim(self) -> int:
        """The generation in which the newest claim was made."""
        generation = newest = 1
        for edge in self.history:
            generation += edge.event is Event.REOPEN
            newest = generation if edge.event is Event.CLAIM else newest
        return newest

    @rule(jitter=JITTER)
    def lease_runs_out(self, jitter: float) -> None:
        self.attempt("lease_lost", jitter=jitter)

    @precondition(lambda self: self.job.state is State.RUNNING)
    @rule()
    def give_back(self) -> None:
        self.attempt("given_back")
        self.answered.add(f"t{self.claims}")

    @rule(force=st.booleans(), reason=st.text(max_size=5))
    def cancel(self, force: bool, reason: str) -> None:
        was = self.job.state
        self.attempt("cancel_requested", reason=reason, force=force)
        if was is State.RUNNING:
            self.cancel_wished = True
            assert State.RUNNING is self.job.state
        elif was not in TERMINAL:
            assert State.CANCELLED is self.job.state

    @rule(verdict=VERDICTS)
    def dependency_ends(self, verdict: Verdict) -> None:
        self.attempt("dependency_ended", verdict=verdict)

    @rule(reset=st.booleans(), delay=SPANS | st.just(timedelta(0)))
    def reopen(self, reset: bool, delay: timedelta) -> None:
        self.attempt("reopened", reset_attempts=reset, delay=delay)

    @invariant()
    def history_is_a_path_through_the_table(self) -> None:
        at: State | None = None
        for edge in self.history:
            assert edge.from_state == at
            assert (edge.from_state, edge.event, edge.to_state) in lifecycle.TABLE
            at = edge.to_state
        assert self.job.state == at

    @invariant()
    def attempts_are_bounded(self) -> None:
        granted = self.job.generation - 1  # at most one attempt for each time it was reopened
        assert 0 <= self.job.attempt <= self.job.max_attempts + granted

    @invariant()
    def an_ended_job_says_when_and_why(self) -> None:
        ended = self.job.state in TERMINAL
        assert ended == (self.job.finished_at is not None)
        if ended:
            assert (self.job.failure is None) == (self.job.state is State.COMPLETED)

    @invariant()
    def a_waiting_job_knows_what_it_waits_for(self) -> None:
        if self.job.state in (State.DELAYED, State.RETRYING):
            assert self.job.due_at is not None
        if self.job.state is State.RUNNING:
            assert self.job.lease is not None
            assert self.job.started_at is not None

    @invariant()
    def a_wish_to_cancel_is_kept_until_the_job_has_ended(self) -> None:
        if self.cancel_wished and self.job.cancel is not None:
            assert self.job.state in {State.RUNNING} | TERMINAL

    @invariant()
    def every_claim_is_one_attempt_in_the_history(self) -> None:
        found = attempts(self.job.id, self.history)
        assert self.claims == len(found)
        assert [None, *[one.id for one in found]][: len(found)] == [
            one.previous_id for one in found
        ]
        assert len({one.id for one in found}) == len(found)
        open_ones = [one for one in found if one.finished_at is None]
        assert (self.job.state is State.RUNNING) >= bool(open_ones)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLife = pytest.mark.req("M-3", "M-7", "M-10", "S-5", "S-10", "L-3", "L-6")(TestLife)


@pytest.mark.req("M-7", "S-10")
@given(max_attempts=st.integers(1, 12), crashes=st.lists(st.booleans(), min_size=12, max_size=12))
def test_starts_never_exceed_the_bound_however_each_attempt_ends(
    max_attempts: int, crashes: list[bool]
) -> None:
    job, starts = making.job(max_attempts=max_attempts), 0

    for crash in crashes:
        if job.state is not State.SCHEDULED:
            break
        job = lifecycle.claimed(job, token=f"t{starts}", worker="w", now=NOW)
        starts += 1
        job = (
            lifecycle.lease_lost(job, now=NOW)
            if crash
            else lifecycle.after_failure(job, making.TEMPORARY, now=NOW)
        )
        if job.state is State.RETRYING:
            job = lifecycle.due(job, now=NOW)

    assert (max_attempts, State.DEAD_LETTER) == (starts, job.state)


@given(failure=FAILURES, jitter=JITTER, attempt=st.integers(1, 100))
def test_a_retry_is_due_between_now_and_the_end_of_a_lifetime(
    failure: Failure, jitter: float, attempt: int
) -> None:
    held = replace(making.running(max_attempts=100), attempt=attempt)

    after = lifecycle.after_failure(held, failure, now=NOW, jitter=jitter)

    if after.state is State.RETRYING:
        assert NOW <= after.due_at <= NOW + held.lifetime
    else:
        assert attempt == 100 or failure.category in ("PERMANENT", "CANCELLED")
