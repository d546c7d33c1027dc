"""The decisions of ``holdfast.model.lifecycle`` as terms for the prover.

``test_induction`` compares them with the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import z3

from holdfast.model.job import State

if TYPE_CHECKING:
    from collections.abc import Callable

STATES = tuple(State)
CODE = {state: number for number, state in enumerate(STATES)}
P, S, D, R, W = (
    CODE[s] for s in (State.PENDING, State.SCHEDULED, State.DELAYED, State.RUNNING, State.RETRYING)
)
DONE, FAILED, DEAD, GONE = (
    CODE[s] for s in (State.COMPLETED, State.FAILED, State.DEAD_LETTER, State.CANCELLED)
)
COMPLETE, FAIL, REFUSE, GIVE_BACK, LAPSE, CANCEL, EXPIRE, REOPEN = range(8)
ANSWERS = (COMPLETE, FAIL, REFUSE, GIVE_BACK)
KINDS = {
    COMPLETE: "complete",
    FAIL: "fail",
    REFUSE: "refuse",
    GIVE_BACK: "give back",
    LAPSE: "lapse",
    CANCEL: "cancel",
    EXPIRE: "expire",
    REOPEN: "reopen",
}


def one_of(value: Any, *codes: int) -> Any:
    return z3.Or([value == code for code in codes])


def live(state: Any) -> Any:
    return one_of(state, P, S, D, R, W)


@dataclass(frozen=True)
class Job:
    """The part of a job that the protocol depends on."""

    state: Any
    revision: Any
    claims: Any
    attempt: Any
    most: Any
    open: Any
    """No outcome was reported under the newest lease."""
    wish: Any
    """Cancellation was requested."""
    over: Any
    """The lifetime of the job is over."""


def claimed(job: Job) -> Job:
    return replace(
        job,
        state=z3.IntVal(R),
        revision=job.revision + 1,
        claims=job.claims + 1,
        attempt=job.attempt + 1,
        open=z3.BoolVal(True),
    )


def due(job: Job) -> Job:
    return replace(job, state=z3.IntVal(S), revision=job.revision + 1)


def _resumed(job: Job) -> Job:
    steps = z3.If(job.state == W, 2, z3.If(job.state == S, 1, 0))
    return replace(job, state=z3.IntVal(R), revision=job.revision + steps)


def completed(job: Job) -> Job:
    job = _resumed(job)
    done = z3.IntVal(DONE)
    return replace(job, state=done, revision=job.revision + 1, open=z3.BoolVal(False))


def _after_attempt(job: Job, *, helps: bool) -> Job:
    after = z3.If(job.attempt >= job.most, DEAD, W) if helps else z3.IntVal(FAILED)
    state = z3.If(job.wish, GONE, z3.If(job.over, DEAD, after))
    return replace(job, state=state, revision=job.revision + 1)


def failed(job: Job) -> Job:
    return replace(_after_attempt(_resumed(job), helps=True), open=z3.BoolVal(False))


def refused(job: Job) -> Job:
    return replace(_after_attempt(_resumed(job), helps=False), open=z3.BoolVal(False))


def given_back(job: Job) -> Job:
    job = _resumed(job)
    return replace(
        job,
        state=z3.If(job.wish, z3.IntVal(GONE), z3.IntVal(S)),
        revision=job.revision + z3.If(job.wish, 1, 2),
        attempt=z3.If(job.wish, job.attempt, job.attempt - 1),
        open=z3.BoolVal(False),
    )


def lease_lost(job: Job) -> Job:
    return _after_attempt(job, helps=True)


def cancel_requested(job: Job) -> Job:
    running = job.state == R
    return replace(
        job,
        state=z3.If(running, job.state, z3.IntVal(GONE)),
        revision=job.revision + 1,
        wish=z3.Or(job.wish, running),
    )


def lifetime_over(job: Job) -> Job:
    return replace(job, state=z3.IntVal(DEAD), revision=job.revision + 1)


def reopened(job: Job) -> Job:
    more = job.attempt + 1
    return replace(
        job,
        state=z3.IntVal(S),
        revision=job.revision + 1,
        most=z3.If(job.most >= more, job.most, more),
        open=z3.BoolVal(False),
        wish=z3.BoolVal(False),
        over=z3.BoolVal(False),
    )


def may_answer(job: Job) -> Any:
    return z3.And(one_of(job.state, R, W, S), job.open, job.claims > 0)


@dataclass(frozen=True)
class Rules:
    """The rules that the protocol depends on; each mutant breaks one of them."""

    revision: bool = True
    """A change is written only on the revision it was decided on."""
    token: bool = True
    """An outcome is written only under the newest token."""
    until: bool = True
    """A lease is reaped only if it still ends when the reaper read it to end."""
    beats_by_token: bool = True
    decide: dict[int, Callable[[Job], Job]] = field(
        default_factory=lambda: {
            COMPLETE: completed,
            FAIL: failed,
            REFUSE: refused,
            GIVE_BACK: given_back,
            LAPSE: lease_lost,
            CANCEL: cancel_requested,
            EXPIRE: lifetime_over,
            REOPEN: reopened,
        }
    )
    may: dict[int, Callable[[Job], Any]] = field(
        default_factory=lambda: {
            **dict.fromkeys(ANSWERS, may_answer),
            LAPSE: lambda job: z3.And(job.state == R, job.open),
            CANCEL: lambda job: live(job.state),
            EXPIRE: lambda job: live(job.state),
            REOPEN: lambda job: one_of(job.state, FAILED, DEAD),
        }
    )
    """In which states each decision is possible."""
    knows_holder: bool = True
    """A worker reports only if it held the newest lease of the job it decided on."""
    release: Callable[[Any], Any] = lambda state: state == DONE
    """When a dependent may run."""
