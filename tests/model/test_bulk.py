"""Operations on many jobs: sums, examples and ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.model.bulk import (
    APPLIES_TO,
    MOST_MESSAGE,
    MOST_PROBLEMS,
    OPTIONS,
    BulkAction,
    BulkOperation,
    BulkState,
    with_problems,
)

NOW = datetime(2026, 11, 18, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
MADE = BulkOperation(
    id="1", action=BulkAction.RETRY, as_of=NOW, matched=4, created_at=NOW, updated_at=NOW
)


def test_counts_add_up_and_only_the_first_problems_are_named() -> None:
    page = with_problems(2, 1, [(str(n), "x" * 500) for n in range(MOST_PROBLEMS - 1)])

    first = MADE.after(page, now=LATER)
    second = first.after(page, now=LATER)

    assert (2, 1, 9, 12) == (first.done, first.skipped, first.failed, first.examined)
    assert (4, 2, 18, 24) == (second.done, second.skipped, second.failed, second.matched)
    assert (MOST_PROBLEMS, "0") == (len(second.problems), second.problems[-1].job_id)
    assert {MOST_MESSAGE} == {len(problem.message) for problem in second.problems}
    assert LATER == second.updated_at


def test_completed_operation_knows_how_many_matched_and_a_stopped_one_does_not() -> None:
    guessed = BulkOperation(
        id="1",
        action=BulkAction.RETRY,
        as_of=NOW,
        matched=10_000,
        matched_exact=False,
        created_at=NOW,
        updated_at=NOW,
    ).after(with_problems(3, 0, []), now=LATER)

    done = guessed.finished(BulkState.COMPLETED, now=LATER)
    stopped = guessed.finished(BulkState.FAILED, now=LATER, error="no")

    assert (3, True, True) == (done.matched, done.matched_exact, done.ended)
    assert (10_000, False, "no") == (stopped.matched, stopped.matched_exact, stopped.error)
    assert (False, LATER) == (guessed.ended, stopped.finished_at)


def test_every_action_has_states_and_options() -> None:
    assert set(BulkAction) == set(APPLIES_TO) == set(OPTIONS)
