"""The checker over many jobs reports what is impossible, and nothing that is possible."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.dependencies import Verdict
from holdfast.model.job import DedupeKey, DependencyKind, Job, State
from holdfast.verify import Checker, Kind, Report, Witness
from holdfast.verify.checker import MAX_FINDINGS
from tests.conformance.hand import failure, make

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NO_SLACK = timedelta(0)


def _later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def _done(
    label: str, *, claimed: float = 1, ended: float = 2, worker: str = "w", at: float = 0
) -> Job:
    job = make(label, now=_later(at), max_attempts=3, type="t")
    job = lifecycle.claimed(job, token="t", worker=worker, now=_later(claimed))
    return lifecycle.completed(job, b"1", now=_later(ended))


def _child(parent: Job, *, enqueued: float, claimed: float, **changes: object) -> Job:
    job = replace(make("child", now=NOW, after=[parent]), **changes)
    verdict = Verdict(State.SCHEDULED, "all dependencies completed")
    job = lifecycle.dependency_ended(job, verdict, now=_later(enqueued))
    return lifecycle.claimed(job, token="t", worker="w", now=_later(claimed))


def _report(
    *jobs: Job, witness: Witness | None = None, parents: tuple[Job, ...] = (), now: float = 100
) -> Report:
    checker = Checker(witness, slack=NO_SLACK, order_slack=NO_SLACK)
    histories = {parent.id: parent.trail for parent in parents}
    for job in jobs:
        checker.check(job, job.trail, histories if job.depends_on else {}, now=_later(now))
    return checker.finish()


def _found(*jobs: Job, **given: object) -> list[tuple[Kind, str]]:
    report = _report(*jobs, **given)  # type: ignore[arg-type]  # passed on
    return [(found.kind, found.text) for found in report.findings]


# --- dependents -----------------------------------------------------------------------------


def test_dependent_that_started_after_its_dependency_is_sound() -> None:
    parent = _done("parent")

    assert [] == _found(_child(parent, enqueued=2, claimed=3), parents=(parent,), now=5)


def test_dependent_that_started_too_early_is_reported() -> None:
    parent = _done("parent", claimed=3, ended=9)

    assert [(Kind.DEPENDENT_EARLY, "started before its dependencies completed")] == _found(
        _child(parent, enqueued=2, claimed=4), parents=(parent,), now=5
    )


def test_dependent_of_any_that_started_before_every_end_is_reported() -> None:
    parent = _done("parent", claimed=3, ended=9)
    child = _child(parent, enqueued=2, claimed=4, dependency_kind=DependencyKind.AFTER_ANY)

    assert [(Kind.DEPENDENT_EARLY, "started before any dependency had ended")] == _found(
        child, parents=(parent,), now=5
    )
    assert [] == _found(child, now=5), "the dependency was deleted since"


def test_dependent_of_all_that_started_before_one_ended_is_reported() -> None:
    ended, late = _done("ended"), _done("late", claimed=3, ended=9)
    child = _child(late, enqueued=2, claimed=4, dependency_kind=DependencyKind.AFTER_ALL)

    assert [(Kind.DEPENDENT_EARLY, "started before all dependencies had ended")] == _found(
        child, parents=(ended, late), now=5
    )
    assert [] == _found(child, parents=(ended,), now=5)


def _waits_again(parent: Job) -> Job:
    job = make("child", now=NOW, after=[parent])
    job = lifecycle.dependency_ended(job, Verdict(State.FAILED, "it failed"), now=_later(2))
    return lifecycle.reopened(job, now=_later(3))


def test_dependent_that_waits_again_for_a_failed_dependency_is_sound() -> None:
    parent = lifecycle.cancelled(make("parent", now=NOW), now=_later(1))

    assert [] == _found(_waits_again(parent), parents=(parent,), now=40)


def test_dependent_that_waits_on_after_a_new_end_is_reported() -> None:
    parent = _done("parent", claimed=4, ended=5)

    text = "is PENDING although its dependencies are decided"
    assert [(Kind.STUCK, text)] == _found(_waits_again(parent), parents=(parent,), now=60)


def test_retried_dependent_that_started_too_early_is_reported() -> None:
    parent = lifecycle.cancelled(make("parent", now=NOW), now=_later(1))
    verdict = Verdict(State.SCHEDULED, "all dependencies completed")
    job = lifecycle.dependency_ended(_waits_again(parent), verdict, now=_later(3))

    assert [(Kind.DEPENDENT_EARLY, "started before its dependencies completed")] == _found(
        lifecycle.claimed(job, token="t", worker="w", now=_later(4)), parents=(parent,), now=5
    )


def test_dependent_that_a_bullmq_client_retried_is_sound() -> None:
    """Its clients know nothing of dependencies: the job is ready at once."""
    parent = lifecycle.cancelled(make("parent", now=NOW), now=_later(1))
    job = make("child", now=NOW, after=[parent])
    job = lifecycle.dependency_ended(job, Verdict(State.FAILED, "it failed"), now=_later(2))
    job = lifecycle.reopened(replace(job, depends_on=()), now=_later(3))
    job = lifecycle.claimed(job, token="t", worker="w", now=_later(4))

    assert [] == _found(replace(job, depends_on=(parent.id,)), parents=(parent,), now=5)


def test_dependent_left_waiting_is_reported() -> None:
    parent = _done("parent")
    child = make("child", now=NOW, after=[parent])
    text = "is PENDING although its dependencies are decided"

    assert [(Kind.STUCK, text)] == _found(child, parents=(parent,), now=40)
    assert [] == _found(child, parents=(parent,), now=20), "the sweep may still find it"
    assert [] == _found(replace(child, held=True), parents=(parent,), now=40)


# --- stuck jobs ------------------------------------------------------------------------------


def test_retry_that_stays_due_is_reported() -> None:
    job = lifecycle.claimed(make("a", now=NOW), token="t", worker="w", now=_later(1))
    job = lifecycle.after_failure(job, failure(retry_after=timedelta(0)), now=_later(2))

    assert [(Kind.STUCK, "is RETRYING although it is due")] == _found(job, now=40)
    assert [] == _found(job, now=20)


def test_expired_lease_that_was_never_reaped_is_reported() -> None:
    job = lifecycle.claimed(make("a", now=NOW), token="t", worker="w", now=_later(1))

    assert [(Kind.STUCK, "is RUNNING although its lease has expired")] == _found(job, now=100)
    assert [] == _found(job, now=31)


def test_nothing_is_stuck_while_no_worker_runs() -> None:
    job = lifecycle.claimed(make("a", now=NOW), token="t", worker="w", now=_later(1))
    checker = Checker(has_workers=False)
    checker.check(job, job.trail, now=_later(1000))

    assert checker.finish().sound


# --- keys -----------------------------------------------------------------------------------


def _keyed(label: str, *, at: float, ends: float | None, scope: str = "t") -> Job:
    key = DedupeKey(scope, "k", "", None if ends is None else _later(ends))
    job = replace(make(label, now=_later(at)), dedupe=key)
    return lifecycle.cancelled(job, now=_later(at))


@pytest.mark.parametrize(("ends", "wrong"), [(None, True), (6.0, True), (5.0, False)])
def test_two_jobs_for_one_key_are_reported_unless_the_first_had_expired(
    ends: float | None, wrong: bool
) -> None:
    text = "has the key 'k' of t, which another job held"
    expected = [(Kind.TWO_FOR_ONE_KEY, text)] if wrong else []

    assert expected == _found(_keyed("a", at=0, ends=ends), _keyed("b", at=5, ends=99))


def test_equal_keys_of_different_types_are_sound() -> None:
    assert [] == _found(_keyed("a", at=0, ends=None), _keyed("b", at=1, ends=None, scope="other"))


# --- order ----------------------------------------------------------------------------------


def _inverted(worker: str = "w") -> list[Job]:
    return [_done("a", at=0, claimed=3, ended=4, worker="w"), _claimed_early(worker)]


def _claimed_early(worker: str) -> Job:
    return _done("b", at=1, claimed=2, ended=5, worker=worker)


def test_job_claimed_before_an_older_one_is_reported() -> None:
    (found,) = _found(*_inverted())

    assert found[0] is Kind.ORDER
    assert 2 == _report(*_inverted()).ordered
    assert found[1].startswith("was claimed before")


def test_job_claimed_while_an_older_one_still_waits_is_reported() -> None:
    waiting = make("a", now=NOW, type="t")

    assert [Kind.ORDER] == [kind for kind, _ in _found(waiting, _claimed_early("w"))]
    assert [] == _found(waiting, _claimed_early("w"), now=1.5), "claimed after the first was read"


def test_two_claimers_may_start_jobs_out_of_order() -> None:
    more = _done("c", at=2, claimed=6, ended=7, worker="other")

    assert [] == _found(*_inverted(worker="other"), more)
    assert 0 == _report(*_inverted(worker="other"), more).ordered


def test_claimers_one_after_the_other_keep_the_order_too() -> None:
    before = _done("z", at=-9, claimed=-8, ended=-7, worker="dead")

    assert [Kind.ORDER] == [kind for kind, _ in _found(before, *_inverted())]


def _other(job: Job, **changes: object) -> list[Job]:
    return [replace(_inverted()[0], **changes), job]


@pytest.mark.parametrize(
    "changes", [{"queue": "q"}, {"priority": 0}, {"type": "u"}, {"limit_key": "k"}]
)
def test_only_jobs_that_differ_only_in_age_have_an_order(
    changes: dict[str, object],
) -> None:
    assert [] == _found(*_other(_claimed_early("w"), **changes))


def test_jobs_queued_within_the_slack_have_no_order() -> None:
    checker = Checker(order_slack=timedelta(seconds=1))
    for job in _inverted():
        checker.check(job, job.trail, now=_later(100))

    assert checker.finish().sound


# --- what clients and handlers saw -----------------------------------------------------------


def _witness_with(record: Callable[[Witness], object]) -> Witness:
    witness = Witness()
    record(witness)
    return witness


def test_accepted_job_that_is_missing_is_reported() -> None:
    job = _done("a")
    witness = _witness_with(lambda seen: seen.accepted.update([job.id, "gone"]))

    (found,) = _report(job, witness=witness).findings

    assert (Kind.LOST, "gone", "was accepted, but is not in the store") == (
        *(found.kind, found.job_id),
        found.text,
    )


def test_confirmed_cancellation_that_did_not_happen_is_reported() -> None:
    job = _done("a")
    witness = _witness_with(lambda seen: seen.cancelled.add(job.id))

    assert [(Kind.CANCEL_IGNORED, "was reported as cancelled, but is COMPLETED")] == _found(
        job, witness=witness
    )


def _retried() -> Job:
    """Claimed, lapsed, claimed again, completed."""
    job = lifecycle.claimed(make("a", now=NOW), token="t", worker="w", now=_later(1))
    job = lifecycle.due(lifecycle.lease_lost(job, now=_later(31)), now=_later(32))
    job = lifecycle.claimed(job, token="u", worker="v", now=_later(33))
    return lifecycle.completed(job, b"1", now=_later(34))


def _seen(job: Job, *versions: int) -> Witness:
    witness = Witness()
    for version in versions:
        witness.effect(job.id, version)
    return witness


def test_effects_that_claims_explain_are_counted_and_sound() -> None:
    job = _retried()
    witness = _seen(job, 1, 2)

    assert [] == _found(job, witness=witness)
    assert (2, 1) == (witness.effects, witness.repeated)


def test_completion_without_an_effect_is_reported() -> None:
    job = _retried()
    text = "completed under claim 2, which had no effect"

    assert [(Kind.MISSING_EFFECT, text)] == _found(job, witness=_seen(job, 1))


def test_effect_that_happened_twice_under_one_claim_is_reported() -> None:
    job = _retried()

    assert [(Kind.REPEATED_EFFECT, "had its effect twice under claim 2")] == _found(
        job, witness=_seen(job, 2, 2)
    )


def test_effect_under_an_unknown_claim_is_reported() -> None:
    job = lifecycle.cancelled(make("a", now=NOW), now=_later(1))

    assert [
        (Kind.REPEATED_EFFECT, "had an effect under claim 3, which is not in its history")
    ] == _found(job, witness=_seen(job, 3))


def test_second_effect_while_the_first_claim_is_open_is_reported() -> None:
    job = _retried()
    forged = replace(job, trail=tuple(edge for edge in job.trail if edge.event != "lapse"))

    found = _found(forged, witness=_seen(job, 1, 2))

    assert (Kind.REPEATED_EFFECT, "had another effect although claim 1 did not end") in found


# --- the report -------------------------------------------------------------------------------


def test_report_counts_every_kind_and_keeps_the_first_of_each() -> None:
    job = replace(_done("a"), state=State.RUNNING)

    report = _report(*[job] * (MAX_FINDINGS + 5))

    assert MAX_FINDINGS + 5 == report.counts[Kind.RECORD]
    assert MAX_FINDINGS == len(report.findings)
    assert set(Kind) == set(report.counts)
    assert not report.sound


def test_report_of_an_empty_store_is_sound() -> None:
    assert Checker().finish().sound
