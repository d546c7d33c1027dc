"""The transition table, written out a second time and compared with the code's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.errors import IllegalTransitionError
from holdfast.model import children, lifecycle
from holdfast.model.dependencies import Verdict
from holdfast.model.job import LIVE, TERMINAL, DependencyKind, Event, Job, State
from tests.model import making
from tests.model.making import LATER, NOW

# from, to: what may happen to a job, as the model's description lists it.
EDGES = """
    -           PENDING
    PENDING     SCHEDULED
    PENDING     DELAYED
    PENDING     FAILED
    PENDING     DEAD_LETTER
    PENDING     CANCELLED
    SCHEDULED   RUNNING
    SCHEDULED   CANCELLED
    SCHEDULED   DEAD_LETTER
    DELAYED     SCHEDULED
    DELAYED     CANCELLED
    DELAYED     DEAD_LETTER
    RUNNING     COMPLETED
    RUNNING     FAILED
    RUNNING     RETRYING
    RUNNING     PENDING
    RUNNING     DEAD_LETTER
    RUNNING     CANCELLED
    RETRYING    SCHEDULED
    RETRYING    CANCELLED
    RETRYING    DEAD_LETTER
    FAILED      SCHEDULED
    FAILED      DELAYED
    FAILED      PENDING
    DEAD_LETTER SCHEDULED
    DEAD_LETTER DELAYED
    DEAD_LETTER PENDING
"""

# event: from, to. Every edge with every event that may take it.
EVENTS = """
    submit      -           PENDING
    enqueue     PENDING     SCHEDULED
    delay       PENDING     DELAYED
    inherit     PENDING     FAILED
    inherit     PENDING     DEAD_LETTER
    inherit     PENDING     CANCELLED
    due         DELAYED     SCHEDULED
    due         RETRYING    SCHEDULED
    claim       SCHEDULED   RUNNING
    resume      SCHEDULED   RUNNING
    complete    RUNNING     COMPLETED
    fail        RUNNING     FAILED
    retry       RUNNING     RETRYING
    lapse       RUNNING     RETRYING
    give_back   RUNNING     RETRYING
    wait        RUNNING     PENDING
    exhaust     RUNNING     DEAD_LETTER
    cancel      PENDING     CANCELLED
    cancel      SCHEDULED   CANCELLED
    cancel      DELAYED     CANCELLED
    cancel      RUNNING     CANCELLED
    cancel      RETRYING    CANCELLED
    expire      PENDING     DEAD_LETTER
    expire      SCHEDULED   DEAD_LETTER
    expire      DELAYED     DEAD_LETTER
    expire      RUNNING     DEAD_LETTER
    expire      RETRYING    DEAD_LETTER
    reopen      FAILED      SCHEDULED
    reopen      FAILED      DELAYED
    reopen      FAILED      PENDING
    reopen      DEAD_LETTER SCHEDULED
    reopen      DEAD_LETTER DELAYED
    reopen      DEAD_LETTER PENDING
"""


def _rows(text: str) -> set[tuple[str | None, ...]]:
    rows = {tuple(line.split()) for line in text.strip().splitlines()}
    return {tuple(None if cell == "-" else cell for cell in row) for row in rows}


@pytest.mark.req("M-3", "L-3")
def test_states_follow_each_other_only_as_the_contract_lists() -> None:
    assert _rows(EDGES) == set(lifecycle.EDGES)


@pytest.mark.req("M-3")
def test_every_edge_is_taken_by_the_events_the_contract_names() -> None:
    assert _rows(EVENTS) == {(event, before, after) for before, event, after in lifecycle.TABLE}


@pytest.mark.req("M-3")
def test_states_are_live_or_terminal() -> None:
    terminal = {State.COMPLETED, State.FAILED, State.DEAD_LETTER, State.CANCELLED}

    assert terminal == TERMINAL
    assert set(State) - terminal == LIVE


@pytest.mark.req("M-3", "L-3")
@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("event", Event)
def test_step_refuses_everything_else(before: State, event: Event) -> None:
    job = making.in_state(before)
    allowed = {to for name, source, to in _rows(EVENTS) if (name, source) == (event, before)}

    for to in State:
        if to in allowed:
            after = lifecycle.step(job, event, to, now=LATER)
            assert (to, before, event) == (
                after.state,
                after.trail[-1].from_state,
                after.trail[-1].event,
            )
        else:
            with pytest.raises(IllegalTransitionError, match=f"{event} cannot take it"):
                lifecycle.step(job, event, to, now=LATER)


def _due_now(job: Job) -> Job:
    return lifecycle.enqueued(job, now=LATER)


# What each event function may do, by the state it finds; anything else must be refused.
FUNCTIONS: dict[str, tuple[Callable[[Job], Job], dict[str, str]]] = {
    "enqueued": (_due_now, {"PENDING": "SCHEDULED"}),
    "due": (
        lambda job: lifecycle.due(job, now=LATER),
        {"DELAYED": "SCHEDULED", "RETRYING": "SCHEDULED"},
    ),
    "claimed": (
        lambda job: lifecycle.claimed(job, token="t", worker="w", now=LATER),
        {"SCHEDULED": "RUNNING"},
    ),
    "completed": (
        lambda job: lifecycle.completed(job, None, now=LATER),
        {"RUNNING": "COMPLETED"},
    ),
    "after_failure, temporary": (
        lambda job: lifecycle.after_failure(job, making.TEMPORARY, now=LATER),
        {"RUNNING": "RETRYING"},
    ),
    "after_failure, permanent": (
        lambda job: lifecycle.after_failure(job, making.PERMANENT, now=LATER),
        {"RUNNING": "FAILED"},
    ),
    "after_failure, too late": (
        lambda job: lifecycle.after_failure(job, making.TEMPORARY, now=job.expires_at),
        {"RUNNING": "DEAD_LETTER"},
    ),
    "lease_lost": (lambda job: lifecycle.lease_lost(job, now=LATER), {"RUNNING": "RETRYING"}),
    "lease_lost, too late": (
        lambda job: lifecycle.lease_lost(job, now=job.expires_at),
        {"RUNNING": "DEAD_LETTER"},
    ),
    "given_back": (lambda job: lifecycle.given_back(job, now=LATER), {"RUNNING": "SCHEDULED"}),
    "waiting": (
        lambda job: children.waiting(job, DependencyKind.AFTER_ALL, now=LATER),
        {"RUNNING": "PENDING"},
    ),
    "waiting, too late": (
        lambda job: children.waiting(job, DependencyKind.AFTER_ALL, now=job.expires_at),
        dict.fromkeys(LIVE, "DEAD_LETTER"),
    ),
    "resumed": (
        lambda job: lifecycle.resumed(job, now=LATER),
        {"RETRYING": "RUNNING", "SCHEDULED": "RUNNING"},
    ),
    "cancelled": (
        lambda job: lifecycle.cancelled(job, now=LATER),
        dict.fromkeys(LIVE, "CANCELLED"),
    ),
    "lifetime_over": (
        lambda job: lifecycle.lifetime_over(job, now=LATER),
        dict.fromkeys(LIVE, "DEAD_LETTER"),
    ),
    "dependency_ended": (
        lambda job: lifecycle.dependency_ended(
            lifecycle.replace(job, held=False), Verdict(State.FAILED, "it failed"), now=LATER
        ),
        {"PENDING": "FAILED"},
    ),
    "reopened": (
        lambda job: lifecycle.reopened(job, now=LATER),
        {"FAILED": "SCHEDULED", "DEAD_LETTER": "SCHEDULED"},
    ),
    "reopened with dependencies": (
        lambda job: lifecycle.reopened(lifecycle.replace(job, depends_on=("p",)), now=LATER),
        {"FAILED": "PENDING", "DEAD_LETTER": "PENDING"},
    ),
}


@pytest.mark.req("M-3", "L-3")
@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_event_function_moves_only_jobs_it_may(name: str, before: State) -> None:
    event, moves = FUNCTIONS[name]
    job = making.in_state(before)

    if before in moves:
        assert moves[before] == event(job).state
    else:
        with pytest.raises(IllegalTransitionError):
            event(job)


@pytest.mark.req("M-3")
@pytest.mark.parametrize("before", [s for s in State if s is not State.PENDING])
def test_only_a_new_job_can_be_submitted(before: State) -> None:
    with pytest.raises(IllegalTransitionError, match="submit cannot take it"):
        lifecycle.submitted(making.in_state(before))

    with pytest.raises(IllegalTransitionError):
        lifecycle.submitted(making.job(hold=True))


@pytest.mark.req("M-3")
def test_a_submission_is_pending_first_and_the_history_has_the_reasons() -> None:
    submitted, queued = making.job().trail

    assert (None, State.PENDING, NOW, "submitted") == (
        submitted.from_state,
        submitted.to_state,
        submitted.at,
        submitted.reason,
    )
    assert (State.PENDING, State.SCHEDULED, NOW, "nothing to wait for") == (
        queued.from_state,
        queued.to_state,
        queued.at,
        queued.reason,
    )
