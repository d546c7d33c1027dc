"""Running jobs that wait for the jobs they spawned: the decisions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.errors import ValidationError, WaitForChildren
from holdfast.model import children
from holdfast.model.children import ChildJob, checked_kind, child_job, must_wait
from holdfast.model.job import CancelRequest, DependencyKind, Event, State
from tests.model.making import LATER, NOW, running

ALL, STRICT = DependencyKind.AFTER_ALL, DependencyKind.AFTER
pytestmark = pytest.mark.req("M-9")


def _child(state: State) -> ChildJob:
    return ChildJob(job_id=state, type="t", state=state)


def test_waiting_job_keeps_its_attempt_and_gives_up_its_lease() -> None:
    job = running()

    after = children.waiting(job, ALL, now=LATER)

    assert (State.PENDING, job.attempt - 1, ALL) == (
        after.state,
        after.attempt,
        after.dependency_kind,
    )
    assert after.lease is not None
    assert (None, "t1") == (after.lease.until, after.lease.token)
    assert (Event.WAIT, "waits for the jobs it spawned") == (
        after.trail[-1].event,
        after.trail[-1].reason,
    )


def test_cancelled_job_does_not_wait() -> None:
    job = replace(running(), cancel=CancelRequest("stop", force=False, at=NOW))

    assert State.CANCELLED is children.waiting(job, ALL, now=LATER).state


@pytest.mark.parametrize(
    ("kind", "states", "waits"),
    [
        (ALL, [], False),
        (ALL, [State.COMPLETED, State.FAILED], False),
        (ALL, [State.COMPLETED, State.RUNNING], True),
        (STRICT, [State.COMPLETED], False),
        (STRICT, [State.COMPLETED, State.PENDING], True),
        (STRICT, [State.COMPLETED, State.CANCELLED], True),
    ],
)
def test_job_waits_unless_its_children_have_ended_as_required(
    kind: DependencyKind, states: list[State], *, waits: bool
) -> None:
    assert waits is must_wait(kind, [_child(state) for state in states])


@pytest.mark.parametrize("kind", ["AFTER_ANY", "FAN_IN", "", "after_all", None])
def test_other_kinds_are_refused(kind: str) -> None:
    with pytest.raises(ValidationError, match="kind must be one of AFTER_ALL, AFTER"):
        checked_kind(kind)


@pytest.mark.parametrize("kind", [ALL, STRICT, "AFTER_ALL", "AFTER"])
def test_kinds_of_waiting_are_read(kind: str) -> None:
    assert DependencyKind(kind) is checked_kind(kind)


def test_spawner_sees_the_state_and_result_of_its_child() -> None:
    job = replace(running(), state=State.COMPLETED, result=b"7")

    child = child_job(job)

    assert (job.id, job.type, State.COMPLETED, b"7", None) == (
        child.job_id,
        child.type,
        child.state,
        child.result,
        child.failure,
    )


def test_wait_is_not_an_error_that_a_handler_catches() -> None:
    wait = WaitForChildren(ALL)

    assert ALL == wait.kind
    assert not isinstance(wait, Exception)
