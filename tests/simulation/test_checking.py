"""The checks over whole runs name each thing that cannot be."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.acceptance import accept
from holdfast.model.job import DedupeKey, DependencyKind, Job, State
from holdfast.model.submission import Parent, Submission
from holdfast.store import Change, Fence, Swapped
from tests.simulation.checking import Evidence, violations
from tests.simulation.record import Claimed, Execution, Record, Written
from tests.simulation.world import BEGIN


def _at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def _job(id_: str, **options: Any) -> Job:
    submission = Submission(type="work", payload={"steps": []}, **options)
    return accept(submission, job_id=id_, now=BEGIN, parents={"a": Parent(2, 0)})


class ForgedRun:
    """A run in which one job is claimed at 1 s and completes at 3 s; to be forged."""

    def __init__(self) -> None:
        self.record = Record(lambda: 0.0)
        self.job = _job("a", lease=10, timeout=20)
        self.running = lifecycle.claimed(self.job, token="t1", worker="w", now=_at(1))
        self.done = lifecycle.completed(self.running, b"1", now=_at(3))
        self.record.accepted["a"] = "client"
        self.record.claims.append(Claimed(self.running, "w", 1.0))
        self.record.executions.append(Execution("w", "a", 1, 1.0, finished=2.9))
        self.answer(self.running, self.done)
        self.jobs = [self.done]
        self.parents: dict[str, list[str]] = {}
        self.ended = True
        self.end = 50.0

    def answer(self, before: Job, after: Job, *, by: str = "w", at: float = 3.0) -> Written:
        fresh = replace(after, trail=after.trail[len(before.trail) :])
        written = Written(by, at, Change(before, fresh), Swapped(written=True))
        self.record.swaps.append(written)
        return written

    def violations(self) -> list[str]:
        return violations(
            Evidence(
                record=self.record,
                jobs=self.jobs,
                histories={job.id: list(job.trail) for job in self.jobs},
                parents={job.id: self.parents.get(job.id, []) for job in self.jobs},
                ended=self.ended,
                end=self.end,
            )
        )


@pytest.fixture
def run() -> ForgedRun:
    return ForgedRun()


def test_a_correct_run_has_no_violations(run: ForgedRun) -> None:
    assert [] == run.violations()


def test_a_job_that_never_ends_is_named(run: ForgedRun) -> None:
    run.jobs = [run.running]
    run.ended = False

    assert any("a is still RUNNING" in text for text in run.violations())


def test_a_lost_job_is_named(run: ForgedRun) -> None:
    run.record.accepted["b"] = "client"

    assert ["b was accepted, but is not in the store"] == run.violations()


def test_a_claim_given_twice_is_named(run: ForgedRun) -> None:
    run.record.claims.append(Claimed(run.running, "other", 1.0))

    assert any("claim 1 given 2 times" in text for text in run.violations())


def test_a_valid_lease_that_is_reaped_is_named(run: ForgedRun) -> None:
    lapsed = lifecycle.lease_lost(run.running, now=_at(11))
    run.record.renewals.append((5.0, Fence("a", "t1"), _at(15)))
    run.answer(run.running, lapsed, by="reaper", at=11.5)

    assert any("reaped while its lease was valid" in text for text in run.violations())


def test_an_expired_lease_may_be_reaped(run: ForgedRun) -> None:
    lapsed = lifecycle.lease_lost(run.running, now=_at(11))
    run.answer(run.running, lapsed, by="reaper", at=11.5)

    assert [] == run.violations()


def test_a_lease_renewed_past_the_deadline_is_named(run: ForgedRun) -> None:
    run.record.beats.append((40.0, Fence("a", "t1")))

    assert ["a was renewed 39.0 s after its start"] == run.violations()


def test_an_outcome_under_anothers_lease_is_named(run: ForgedRun) -> None:
    run.record.swaps[0].sender = "other"
    run.record.executions[0].process = "other"

    assert ["a was settled by other under another's lease"] == run.violations()


def test_a_result_of_another_attempt_is_named(run: ForgedRun) -> None:
    run.jobs = [replace(run.done, result=b"7")]

    assert [
        "a version 1 holds the result of b'7'",
        "a completed without having run to its end",
    ] == run.violations()


def test_a_claim_that_runs_twice_is_named(run: ForgedRun) -> None:
    run.record.executions.append(Execution("w", "a", 1, 1.5))

    assert ["a version 1 ran 2 times"] == run.violations()


def test_an_effect_without_a_claim_is_named(run: ForgedRun) -> None:
    run.record.executions.append(Execution("w", "a", 2, 1.5))

    assert ["a ran as version 2, which was never claimed"] == run.violations()


def test_a_result_that_is_never_written_is_named(run: ForgedRun) -> None:
    run.record.swaps.clear()

    assert ["a version 1 finished and was never written"] == run.violations()


def test_a_dead_process_need_not_write(run: ForgedRun) -> None:
    run.record.swaps.clear()
    run.record.deaths["w"] = 2.95

    assert [] == run.violations()


def test_an_abandoned_outcome_is_named(run: ForgedRun) -> None:
    lapsed = lifecycle.lease_lost(run.running, now=_at(11))
    run.record.swaps[0].answer = Swapped(written=False, job=lapsed)

    assert ["a: w abandoned an outcome that was still accepted"] == run.violations()


def test_a_reaper_may_leave_a_job_whose_claim_its_own_process_never_received(
    run: ForgedRun,
) -> None:
    run.record.executions.clear()
    run.record.swaps.clear()
    after = lifecycle.cancelled(run.running, now=_at(3))
    change = Change(run.running, replace(after, trail=after.trail[-1:]), _at(11))
    refused = Swapped(written=False, job=run.running)
    run.record.swaps.append(Written("w", 3.0, change, refused))
    run.jobs = [lifecycle.cancelled(run.running, now=_at(4))]

    assert [] == run.violations()


def test_a_dependent_that_starts_early_is_named(run: ForgedRun) -> None:
    child = _job("b", depends_on=["a"])
    ready = lifecycle.enqueued(child, now=_at(1))
    started = lifecycle.claimed(ready, token="t2", worker="w", now=_at(2))
    run.jobs.append(lifecycle.cancelled(started, now=_at(4)))
    run.parents["b"] = ["a"]

    assert ["b started before its dependencies completed"] == run.violations()


def test_a_dependent_of_any_that_starts_before_all_is_named(run: ForgedRun) -> None:
    child = _job("b", depends_on=["a"], dependency_type=DependencyKind.AFTER_ANY)
    ready = lifecycle.enqueued(child, now=_at(1))
    started = lifecycle.claimed(ready, token="t2", worker="w", now=_at(2))
    run.jobs.append(lifecycle.cancelled(started, now=_at(4)))
    run.parents["b"] = ["a"]

    assert ["b started before any dependency had ended"] == run.violations()


def test_two_jobs_with_one_key_are_named(run: ForgedRun) -> None:
    key = DedupeKey("work", "k", "", None)
    run.jobs = [
        replace(run.done, dedupe=key),
        replace(lifecycle.cancelled(_job("b"), now=_at(4)), dedupe=key),
    ]

    assert ["b has the key 'k' of work, which another job held"] == run.violations()


@pytest.mark.parametrize("answer", ["CANCELLED", "CANCEL_REQUESTED"])
def test_a_cancellation_that_did_not_happen_is_named(run: ForgedRun, answer: str) -> None:
    run.record.cancels.append((0.5, "a", answer))

    assert "a was requested to stop and started again" in run.violations()
    assert ("a was reported as cancelled, but is COMPLETED" in run.violations()) == (
        answer == "CANCELLED"
    )


def test_missing_and_surplus_ticks_are_named(run: ForgedRun) -> None:
    run.record.schedule_seen = BEGIN
    run.end = 100.0
    tick = replace(lifecycle.cancelled(_job("t"), now=_at(4)), type="tick")

    assert ["2 minutes began and only 0 ticks were submitted"] == run.violations()
    run.jobs += [replace(tick, id=f"t{i}") for i in range(3)]
    assert ["3 ticks were submitted in 2 minutes"] == run.violations()


def test_a_child_spawned_twice_is_named(run: ForgedRun) -> None:
    child = lifecycle.cancelled(_job("b"), now=_at(4))
    run.jobs.append(replace(child, spawned_by="a"))

    assert ["a spawned 1 children instead of 0"] == run.violations()


def test_what_a_jobs_own_history_shows_is_named_too(run: ForgedRun) -> None:
    run.jobs = [replace(run.done, state=State.FAILED)]

    assert any(
        "is FAILED, but its history ends with COMPLETED" in text for text in run.violations()
    )


def test_what_was_wrong_when_it_happened_is_named(run: ForgedRun) -> None:
    run.record.wrongs.append("worker-1 stopped without a request")

    assert ["worker-1 stopped without a request"] == run.violations()
