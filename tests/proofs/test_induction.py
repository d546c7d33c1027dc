"""The lease protocol proved for any number of workers, claims, messages and delays."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.errors import IllegalTransitionError
from holdfast.model import lifecycle
from holdfast.model.acceptance import accept
from holdfast.model.job import (
    CancelRequest,
    Failure,
    FailureCategory,
    Job,
    Lease,
    State,
    attempt_limit,
)
from holdfast.model.submission import Submission

z3 = pytest.importorskip("z3", reason="the proof needs z3-solver, of the group 'proof'")

from tests.proofs import protocol  # noqa: E402  # only if z3 is installed
from tests.proofs.induction import gaps, impossible  # noqa: E402
from tests.proofs.protocol import (  # noqa: E402
    CANCEL,
    COMPLETE,
    EXPIRE,
    FAIL,
    GIVE_BACK,
    LAPSE,
    REFUSE,
    REOPEN,
    Rules,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEMPORARY = Failure(category=FailureCategory.TEMPORARY, message="")
PERMANENT = Failure(category=FailureCategory.PERMANENT, message="")


@pytest.mark.req("M-3", "S-4", "S-5", "S-6", "S-10", "S-12", "M-9", "A-12")
def test_protocol_keeps_its_promises_for_unbounded_workers_and_messages() -> None:
    assert [] == gaps(Rules())


def test_every_move_can_be_made_so_the_proof_is_not_empty() -> None:
    assert [] == impossible(Rules())


@pytest.mark.req("S-5")
def test_either_fence_alone_refuses_older_leases() -> None:
    for rules in (Rules(token=False), Rules(revision=False)):
        for kind in ("complete", "fail"):
            broken = {gap.broken for gap in gaps(rules, only=f"{kind} is heard")}
            assert "no outcome under an older lease" not in broken


def _with(kind: int, decide: Callable[[protocol.Job], protocol.Job]) -> Rules:
    return Rules(decide={**Rules().decide, kind: decide})


def _if(kind: int, may: Callable[[protocol.Job], Any]) -> Rules:
    return Rules(may={**Rules().may, kind: may})


def _uncounted(job: protocol.Job) -> protocol.Job:
    return replace(protocol.lease_lost(job), attempt=job.attempt - 1)


def _forgetting(job: protocol.Job) -> protocol.Job:
    return protocol.failed(replace(job, wish=z3.BoolVal(False)))


def _still_open(job: protocol.Job) -> protocol.Job:
    return replace(protocol.reopened(job), open=job.open)


def _not_closing(job: protocol.Job) -> protocol.Job:
    return replace(protocol.failed(job), open=z3.BoolVal(True))


def _not_counting(job: protocol.Job) -> protocol.Job:
    return replace(protocol.cancel_requested(job), revision=job.revision)


def _in_any_state(job: protocol.Job) -> Any:
    return job.claims >= 0


MUTANTS = {
    "an outcome of a stale worker is accepted": (
        Rules(revision=False, token=False),
        "complete is heard",
        "no outcome under an older lease",
    ),
    "a stale worker decides on the current job": (
        Rules(token=False, knows_holder=False),
        "complete is decided",
        "changes in transit",
    ),
    "the reaper overwrites a job that ended meanwhile": (
        Rules(revision=False),
        "lapse is heard",
        "an end is final",
    ),
    "the reaper ends a lease that was renewed meanwhile": (
        Rules(until=False),
        "lapse is heard",
        "no valid lease is reaped",
    ),
    "a heartbeat renews the lease of another worker": (
        Rules(beats_by_token=False),
        "beat",
        "no holder of an older lease",
    ),
    "crashes do not count as attempts": (
        _with(LAPSE, _uncounted),
        "lapse is heard",
        "every start counts",
    ),
    "a retry drops the cancel request": (
        _with(FAIL, _forgetting),
        "fail is heard",
        "a job asked to stop never waits again",
    ),
    "an outcome leaves the lease open": (
        _with(FAIL, _not_closing),
        "fail is heard",
        "a lease is open until its outcome is reported",
    ),
    "a worker of an earlier generation may report": (
        _with(REOPEN, _still_open),
        "reopen is heard",
        "an open lease was claimed in this generation",
    ),
    "a cancel request does not increase the revision": (
        _with(CANCEL, _not_counting),
        "cancel is heard",
        "changes in transit",
    ),
    "cancelling overwrites an end": (
        _if(CANCEL, _in_any_state),
        "cancel is decided",
        "changes in transit",
    ),
    "a dependent runs whatever the end of its dependency": (
        Rules(release=lambda state: z3.Not(protocol.live(state))),
        "the dependent is judged",
        "a dependent runs after success only",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_broken_protocol_is_refuted_with_an_example(name: str) -> None:
    rules, move, broken = MUTANTS[name]

    found = {gap.broken: gap.example for gap in gaps(rules, only=move)}

    examples = [found[name] for name in found if broken in name]
    assert examples, set(found)
    assert " = " in examples[0]
    assert broken not in {gap.broken for gap in gaps(Rules(), only=move)}


# --- comparison with the real lifecycle ------------------------------------------------------


def _jobs() -> list[Job]:
    """Return jobs in every situation that the protocol distinguishes."""
    made = accept(Submission(type="t"), job_id="j", now=NOW)
    leases = (None, Lease("t2", 2, "w", NOW), Lease("t2", 2, "w", None))
    claims = (None, CancelRequest("", force=False, at=NOW))
    lifetimes = (NOW + timedelta(days=1), NOW)
    grid = itertools.product(State, (1, 2, 3), leases, claims, lifetimes)
    return [
        msgspec.structs.replace(
            made,
            state=state,
            attempt=attempt,
            max_attempts=2,
            lease=lease,
            cancel=wish,
            expires_at=expires,
            trail=(),
        )
        for state, attempt, lease, wish, expires in grid
    ]


def _abstract(job: Job, most: int | None = None) -> protocol.Job:
    return protocol.Job(
        state=z3.IntVal(protocol.CODE[job.state]),
        revision=z3.IntVal(job.revision),
        claims=z3.IntVal(job.lease_version),
        attempt=z3.IntVal(job.attempt),
        most=z3.IntVal(job.max_attempts if most is None else most),
        open=z3.BoolVal(job.lease is not None and job.lease.until is not None),
        wish=z3.BoolVal(job.cancel is not None),
        over=z3.BoolVal(job.expires_at <= NOW),
    )


def _plain(job: protocol.Job) -> dict[str, str]:
    return {name: str(z3.simplify(value)) for name, value in vars(job).items()}


def _resumed(job: Job) -> Job:
    return job if job.state is State.RUNNING else lifecycle.resumed(job, now=NOW)


REAL: dict[int, Callable[[Job], Job]] = {
    COMPLETE: lambda job: lifecycle.completed(_resumed(job), b"", now=NOW),
    FAIL: lambda job: lifecycle.after_failure(_resumed(job), TEMPORARY, now=NOW),
    REFUSE: lambda job: lifecycle.after_failure(_resumed(job), PERMANENT, now=NOW),
    GIVE_BACK: lambda job: lifecycle.given_back(_resumed(job), now=NOW),
    LAPSE: lambda job: lifecycle.lease_lost(job, now=NOW),
    CANCEL: lambda job: lifecycle.cancel_requested(job, reason="", force=False, now=NOW),
    EXPIRE: lambda job: lifecycle.lifetime_over(job, now=NOW),
    REOPEN: lambda job: lifecycle.reopened(job, now=NOW),
}


@pytest.mark.parametrize("kind", REAL, ids=protocol.KINDS.get)
def test_decision_of_the_model_is_the_decision_of_the_lifecycle(kind: int) -> None:
    rules, compared = Rules(), 0
    for job in _jobs():
        if job.state is not State.RUNNING and job.cancel is not None:
            continue  # shown above to be impossible
        known = _abstract(job)
        if kind in protocol.ANSWERS:
            may = lifecycle.may_answer(job, "t2")
            assert may == z3.is_true(z3.simplify(protocol.may_answer(known)))
        else:
            may = z3.is_true(z3.simplify(rules.may[kind](known)))
        if not may:
            continue
        compared += 1
        after = REAL[kind](job)
        # The model counts the attempt that a retry grants into the limit; the job keeps its own.
        most = attempt_limit(after) if kind == REOPEN else None
        assert _plain(_abstract(after, most)) == _plain(rules.decide[kind](known)), job
    assert compared > 5


@pytest.mark.parametrize("kind", [FAIL, LAPSE], ids=protocol.KINDS.get)
def test_an_attempt_that_a_retry_granted_is_the_last(kind: int) -> None:
    granted = [j for j in _jobs() if j.state is State.RUNNING and j.attempt > j.max_attempts]

    for job in granted:
        after = REAL[kind](job)
        known = _abstract(job, attempt_limit(job))

        expected = _plain(Rules().decide[kind](known))
        assert expected == _plain(_abstract(after, attempt_limit(job))), job
    assert len(granted) > 5


def test_lifecycle_refuses_what_the_model_excludes() -> None:
    refused = 0
    for job in _jobs():
        known = _abstract(job)
        for kind in (EXPIRE, REOPEN):
            if z3.is_false(z3.simplify(Rules().may[kind](known))):
                with pytest.raises(IllegalTransitionError):
                    REAL[kind](job)
                refused += 1
    assert refused > 50


def test_claim_and_due_of_the_model_are_those_of_the_lifecycle() -> None:
    for job in _jobs():
        known = _abstract(job)
        if job.state is State.SCHEDULED:
            real = lifecycle.claimed(job, token="t3", worker="w", now=NOW)
            assert _plain(_abstract(real)) == _plain(protocol.claimed(known))
        if job.state in (State.DELAYED, State.RETRYING):
            real = lifecycle.due(job, now=NOW)
            assert _plain(_abstract(real)) == _plain(protocol.due(known))
