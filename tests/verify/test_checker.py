"""The checker over many jobs names each thing that cannot be, and nothing that can."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.dependencies import Verdict
from holdfast.model.job import DedupeKey, DependencyKind, Job, State
from holdfast.verify import Checker, Kind, Report, Witness
from holdfast.verify.checker import MOST_TOLD
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
    checker = Checker(witness, slack=NO_SLACK, on_its_way=NO_SLACK)
    histories = {parent.id: parent.trail for parent in parents}
    for job in jobs:
        checker.see(job, job.trail, histories if job.depends_on else {}, now=_later(now))
    return checker.finish()


def _found(*jobs: Job, **given: object) -> list[tuple[Kind, str]]:
    report = _report(*jobs, **given)  # type: ignore[arg-type]  # passed on
    return [(found.kind, found.text) for found in report.findings]


# --- dependents -----------------------------------------------------------------------------


def test_dependent_that_started_after_its_dependency_is_sound() -> None:
    parent = _done("parent")

    assert [] == _found(_child(parent, enqueued=2, claimed=3), parents=(parent,), now=5)


def test_dependent_that_started_too_early_is_named() -> None:
    parent = _done("parent", claimed=3, ended=9)

    assert [(Kind.DEPENDENT_EARLY, "started before its dependencies completed")] == _found(
        _child(parent, enqueued=2, claimed=4), parents=(parent,), now=5
    )


def test_dependent_of_any_that_started_before_all_is_named() -> None:
    parent = _done("parent", claimed=3, ended=9)
    child = _child(parent, enqueued=2, claimed=4, dependency_kind=DependencyKind.AFTER_ANY)

    assert [(Kind.DEPENDENT_EARLY, "started before any dependency had ended")] == _found(
        child, parents=(parent,), now=5
    )
    assert [] == _found(child, now=5), "the dependency was deleted since"


def test_dependent_that_an_operator_started_is_sound() -> None:
    parent = lifecycle.cancelled(make("parent", now=NOW), now=_later(1))
    job = make("child", now=NOW, after=[parent])
    job = lifecycle.dependency_ended(job, Verdict(State.FAILED, "it failed"), now=_later(2))
    job = lifecycle.reopened(job, now=_later(3))

    assert [] == _found(
        lifecycle.claimed(job, token="t", worker="w", now=_later(4)), parents=(parent,), now=5
    )


def test_dependent_left_waiting_is_named() -> None:
    parent = _done("parent")
    child = make("child", now=NOW, after=[parent])
    told = "waits although its dependencies are decided"

    assert [(Kind.STUCK, told)] == _found(child, parents=(parent,), now=40)
    assert [] == _found(child, parents=(parent,), now=20), "the sweep may still find it"
    assert [] == _found(replace(child, held=True), parents=(parent,), now=40)


# --- nothing stays due ------------------------------------------------------------------------


def test_retry_that_nobody_made_ready_is_named() -> None:
    job = lifecycle.claimed(make("a", now=NOW), token="t", worker="w", now=_later(1))
    job = lifecycle.after_failure(job, failure(retry_after=timedelta(0)), now=_later(2))

    assert [(Kind.STUCK, "is RETRYING although its time has come")] == _found(job, now=40)
    assert [] == _found(job, now=20)


def test_lease_that_nobody_took_back_is_named() -> None:
    job = lifecycle.claimed(make("a", now=NOW), token="t", worker="w", now=_later(1))

    assert [(Kind.STUCK, "is RUNNING although its lease ended long ago")] == _found(job, now=100)
    assert [] == _found(job, now=31)


def test_nothing_is_stuck_while_no_worker_is_there() -> None:
    job = lifecycle.claimed(make("a", now=NOW), token="t", worker="w", now=_later(1))
    checker = Checker(tended=False)
    checker.see(job, job.trail, now=_later(1000))

    assert checker.finish().sound


# --- keys -----------------------------------------------------------------------------------


def _keyed(label: str, *, at: float, ends: float | None, scope: str = "t") -> Job:
    key = DedupeKey(scope, "k", "", None if ends is None else _later(ends))
    job = replace(make(label, now=_later(at)), dedupe=key)
    return lifecycle.cancelled(job, now=_later(at))


@pytest.mark.parametrize(("ends", "wrong"), [(None, True), (6.0, True), (5.0, False)])
def test_two_jobs_for_one_key_are_named_unless_the_first_had_expired(
    ends: float | None, wrong: bool
) -> None:
    told = "has the key 'k' of t, which was another's"
    expected = [(Kind.TWO_FOR_ONE_KEY, told)] if wrong else []

    assert expected == _found(_keyed("a", at=0, ends=ends), _keyed("b", at=5, ends=99))


def test_equal_keys_of_different_types_are_sound() -> None:
    assert [] == _found(_keyed("a", at=0, ends=None), _keyed("b", at=1, ends=None, scope="other"))


# --- order ----------------------------------------------------------------------------------


def _inverted(worker: str = "w") -> list[Job]:
    return [_done("a", at=0, claimed=3, ended=4, worker="w"), _served_early(worker)]


def _served_early(worker: str) -> Job:
    return _done("b", at=1, claimed=2, ended=5, worker=worker)


def test_job_served_before_an_older_one_is_named() -> None:
    (found,) = _found(*_inverted())

    assert found[0] is Kind.ORDER
    assert 2 == _report(*_inverted()).ordered
    assert found[1].startswith("was served before")


def test_job_served_while_an_older_one_still_waits_is_named() -> None:
    waiting = make("a", now=NOW, type="t")

    assert [Kind.ORDER] == [kind for kind, _ in _found(waiting, _served_early("w"))]
    assert [] == _found(waiting, _served_early("w"), now=1.5), "claimed after the first was read"


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
def test_only_jobs_that_nothing_but_age_tells_apart_have_an_order(
    changes: dict[str, object],
) -> None:
    assert [] == _found(*_other(_served_early("w"), **changes))


def test_submissions_that_were_long_on_their_way_have_no_order() -> None:
    checker = Checker(on_its_way=timedelta(seconds=1))
    for job in _inverted():
        checker.see(job, job.trail, now=_later(100))

    assert checker.finish().sound


# --- what was seen outside -------------------------------------------------------------------


def _witness(emit: Callable[[Witness], object]) -> Witness:
    witness = Witness()
    emit(witness)
    return witness


def test_accepted_job_that_is_not_there_is_named() -> None:
    job = _done("a")
    witness = _witness(lambda seen: seen.accepted.update([job.id, "gone"]))

    (found,) = _report(job, witness=witness).findings

    assert (Kind.LOST, "gone", "was accepted and is lost") == (
        *(found.kind, found.job_id),
        found.text,
    )


def test_cancellation_that_was_promised_and_did_not_happen_is_named() -> None:
    job = _done("a")
    witness = _witness(lambda seen: seen.cancelled.add(job.id))

    assert [(Kind.CANCEL_LIE, "was said to be cancelled and is COMPLETED")] == _found(
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


def test_completion_without_an_effect_is_named() -> None:
    job = _retried()
    told = "completed under claim 2, which had no effect"

    assert [(Kind.MISSING_EFFECT, told)] == _found(job, witness=_seen(job, 1))


def test_effect_that_happened_twice_under_one_claim_is_named() -> None:
    job = _retried()

    assert [(Kind.REPEATED_EFFECT, "had its effect twice under claim 2")] == _found(
        job, witness=_seen(job, 2, 2)
    )


def test_effect_under_a_claim_that_nobody_made_is_named() -> None:
    job = lifecycle.cancelled(make("a", now=NOW), now=_later(1))

    assert [(Kind.REPEATED_EFFECT, "had an effect under claim 3, which nobody made")] == _found(
        job, witness=_seen(job, 3)
    )


def test_second_effect_although_the_first_claim_stood_is_named() -> None:
    job = _retried()
    forged = replace(job, trail=tuple(edge for edge in job.trail if edge.event != "lapse"))

    found = _found(forged, witness=_seen(job, 1, 2))

    assert (Kind.REPEATED_EFFECT, "had another effect although claim 1 stood") in found


# --- the report -------------------------------------------------------------------------------


def test_report_counts_every_kind_and_keeps_the_first_of_each() -> None:
    job = replace(_done("a"), state=State.RUNNING)

    report = _report(*[job] * (MOST_TOLD + 5))

    assert MOST_TOLD + 5 == report.counts[Kind.RECORD]
    assert MOST_TOLD == len(report.findings)
    assert set(Kind) == set(report.counts)
    assert not report.sound


def test_report_of_nothing_is_sound() -> None:
    assert Checker().finish().sound
