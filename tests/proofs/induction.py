"""The lease protocol as a relation between two states, proved to keep its promises.

The model in ``lease`` is complete for two workers and three claims. Here the number of workers,
claims, messages and delays is unbounded: a change in transit is never lost and may be received at
any time, any number of times. Z3 shows that every move preserves the invariant.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import z3

from tests.proofs.protocol import (
    ANSWERS,
    DEAD,
    DONE,
    FAILED,
    GONE,
    KINDS,
    LAPSE,
    REOPEN,
    STATES,
    D,
    Job,
    P,
    R,
    Rules,
    S,
    W,
    claimed,
    due,
    live,
    may_answer,
    one_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

WAITING, RELEASED, ENDED = range(3)
"""The states of a job that depends on this one."""


class Moment:
    """One state of the protocol, as unknowns."""

    def __init__(self, name: str) -> None:
        ints = {f.name: z3.Int(f"{f.name}{name}") for f in fields(Job)}
        flags = {n: z3.Bool(f"{n}{name}") for n in ("open", "wish", "over")}
        self.job = Job(**{**ints, **flags})
        self.now, self.until, self.starts = z3.Ints(f"now{name} until{name} starts{name}")
        self.child = z3.Int(f"child{name}")
        self.stale, self.twice, self.early, self.robbed = z3.Bools(
            f"stale{name} twice{name} early{name} robbed{name}"
        )
        self.told, self.wanted, self.fresh = z3.Bools(f"told{name} wanted{name} fresh{name}")
        whole, flag = z3.IntSort(), z3.BoolSort()
        self.sent = z3.Function(f"sent{name}", whole, whole, whole, whole, flag)
        """(kind, revision decided on, claim reported, end of the lease as read)"""
        self.answered = z3.Function(f"answered{name}", whole, flag)


KIND, AT, CLAIM, SEEN = z3.Ints("kind at claim seen")
"""Any change in transit."""


def facts(here: Moment, kind: int) -> Any:
    """Return what is true of a change that was decided on the current job."""
    job = here.job
    match kind:
        case _ if kind in ANSWERS:
            return z3.And(CLAIM == job.claims, may_answer(job))
        case 4:  # LAPSE
            return z3.And(job.state == R, CLAIM == job.claims, here.now >= SEEN)
        case 7:  # REOPEN
            return one_of(job.state, FAILED, DEAD)
        case _:
            return live(job.state)


def invariant(here: Moment) -> dict[str, Any]:
    """Return the parts of the invariant by name."""
    job = here.job
    kinds = range(REOPEN + 1)
    known = z3.And(*(z3.Implies(KIND == kind, facts(here, kind)) for kind in kinds))
    message = z3.And(KIND >= 0, KIND <= REOPEN, AT <= job.revision, CLAIM >= 0, CLAIM <= job.claims)
    message = z3.And(message, z3.Implies(AT == job.revision, known))
    return {
        "a job is in one of nine states": z3.And(job.state >= 0, job.state < len(STATES)),
        "counters are not negative": z3.And(
            job.claims >= 0, job.attempt >= 0, job.most >= 1, job.revision >= 0
        ),
        "starts never exceed the limit": job.attempt <= job.most,
        "every start counts": job.attempt == here.starts,
        "a waiting job has an attempt left": z3.Implies(
            one_of(job.state, P, S, D, W), job.attempt < job.most
        ),
        "only a running job is asked to stop": z3.Implies(
            job.wish, z3.Or(job.state == R, z3.Not(live(job.state)))
        ),
        "a job asked to stop never waits again": z3.Implies(
            z3.And(here.wanted, live(job.state)), z3.And(job.wish, job.state == R)
        ),
        "an open lease was counted": z3.Implies(
            z3.And(live(job.state), job.open), job.attempt >= 1
        ),
        "a running job was claimed": z3.Implies(job.state == R, z3.And(job.claims > 0, job.open)),
        "a lease is open until its outcome is reported": z3.Implies(
            job.claims > 0, z3.Implies(job.open, z3.Not(here.answered(job.claims)))
        ),
        "outcomes belong to existing claims": z3.ForAll(
            CLAIM, z3.Implies(here.answered(CLAIM), z3.And(CLAIM >= 1, CLAIM <= job.claims))
        ),
        "a completed job has an outcome": z3.Implies(job.state == DONE, here.answered(job.claims)),
        "an open lease was claimed in this generation of the job": z3.Implies(
            z3.And(live(job.state), job.open), here.fresh
        ),
        "no outcome under an older lease": z3.Not(here.stale),
        "no outcome twice": z3.Not(here.twice),
        "no valid lease is reaped": z3.Not(here.robbed),
        "no holder of an older lease renews it": z3.Not(here.early),
        "a job reported as CANCELLED is CANCELLED": z3.Implies(here.told, job.state == GONE),
        "a dependent runs after success only": z3.Implies(
            here.child == RELEASED, job.state == DONE
        ),
        "changes in transit match the job they were decided on": z3.ForAll(
            [KIND, AT, CLAIM, SEEN], z3.Implies(here.sent(KIND, AT, CLAIM, SEEN), message)
        ),
    }


def begin(here: Moment) -> Any:
    """Return the condition of a job that was just accepted."""
    job = here.job
    return z3.And(
        one_of(job.state, P, S, D),
        *(value == 0 for value in (job.revision, job.claims, job.attempt, here.starts)),
        job.most >= 1,
        here.child == WAITING,
        *(
            z3.Not(flag)
            for flag in (job.open, job.wish, here.stale, here.twice, here.early, here.robbed)
        ),
        *(z3.Not(flag) for flag in (here.told, here.wanted, here.fresh)),
        z3.ForAll([KIND, AT, CLAIM, SEEN], z3.Not(here.sent(KIND, AT, CLAIM, SEEN))),
        z3.ForAll(CLAIM, z3.Not(here.answered(CLAIM))),
    )


class Step:
    """One move from a state to the next: what changes, and that all else stays."""

    def __init__(self, before: Moment, after: Moment, when: Any) -> None:
        self._before, self._after = before, after
        self._conditions = [when]
        self._changed: set[str] = set()

    def job(self, job: Job) -> Step:
        then = self._after.job
        self._changed.add("job")
        self._conditions += [getattr(then, f.name) == getattr(job, f.name) for f in fields(Job)]
        return self

    def to(self, **values: Any) -> Step:
        self._changed |= set(values)
        self._conditions += [getattr(self._after, name) == value for name, value in values.items()]
        return self

    def that(self, name: str, *conditions: Any) -> Step:
        self._changed.add(name)
        self._conditions += conditions
        return self

    def relation(self) -> Any:
        before, after = self._before, self._after
        if "job" not in self._changed:
            self.job(before.job)
        for name in _PLAIN:
            if name not in self._changed:
                self._conditions.append(getattr(after, name) == getattr(before, name))
        if "sent" not in self._changed:
            any_change = (KIND, AT, CLAIM, SEEN)
            same = after.sent(*any_change) == before.sent(*any_change)
            self._conditions.append(z3.ForAll(list(any_change), same))
        if "answered" not in self._changed:
            same = after.answered(CLAIM) == before.answered(CLAIM)
            self._conditions.append(z3.ForAll(CLAIM, same))
        return z3.And(*self._conditions)


_PLAIN = (
    *("now", "until", "starts", "child"),
    *("stale", "twice", "early", "robbed", "told", "wanted", "fresh"),
)


def moves(a: Moment, b: Moment, rules: Rules) -> Iterator[tuple[str, Any]]:
    """Yield all moves by name."""
    job = a.job
    yield "time passes", Step(a, b, b.now >= a.now).that("now").relation()
    yield "a lifetime ends", Step(a, b, True).job(replace(job, over=z3.BoolVal(True))).relation()
    yield "it becomes due", Step(a, b, one_of(job.state, D, W, P)).job(due(job)).relation()
    taken = Step(a, b, job.state == S).job(claimed(job)).that("until", b.until > a.now)
    yield "claim", taken.to(starts=a.starts + 1, fresh=z3.BoolVal(True)).relation()
    mine = job.claims == CLAIM if rules.beats_by_token else z3.And(CLAIM >= 1, job.claims >= CLAIM)
    beat = Step(a, b, z3.And(job.state == R, job.open, mine)).that("until", b.until > a.now)
    yield "beat", beat.to(early=z3.Or(a.early, job.claims != CLAIM)).relation()
    for kind, name in KINDS.items():
        yield f"{name} is decided", _decided(a, b, kind, rules)
        yield f"{name} is heard", _heard(a, b, kind, rules)
    is_over = z3.Not(live(job.state))
    fate = z3.If(rules.release(job.state), RELEASED, ENDED)
    free = z3.And(a.child == WAITING, z3.Or(is_over, rules.release(job.state)))
    yield "the dependent is judged", Step(a, b, free).to(child=fate).relation()


def _decided(a: Moment, b: Moment, kind: int, rules: Rules) -> Any:
    """A process reads the current job and sends a change, which may be received from now on."""
    job, change = a.job, (KIND, AT, CLAIM, SEEN)
    who = z3.Int("who")
    holder = who == job.claims
    if kind in ANSWERS and not rules.knows_holder:
        holder = z3.And(who >= 1, who <= job.claims)
    run_out = a.until <= a.now if kind == LAPSE else True
    new = z3.And(KIND == kind, AT == job.revision, CLAIM == who, SEEN == a.until)
    sent = z3.ForAll(list(change), b.sent(*change) == z3.Or(a.sent(*change), new))
    may = z3.And(rules.may[kind](job), holder, run_out)
    return Step(a, b, may).that("sent", sent).relation()


def _heard(a: Moment, b: Moment, kind: int, rules: Rules) -> Any:
    """The store receives a change and checks whether it was decided on the stored job."""
    job = a.job
    at, claim, seen = z3.Ints("at_ claim_ seen_")
    fence = [a.sent(kind, at, claim, seen)]
    if rules.revision:
        fence.append(at == job.revision)
    if rules.token and kind in ANSWERS:
        fence.append(claim == job.claims)
    if rules.until and kind == LAPSE:
        fence.append(seen == a.until)
    after = rules.decide[kind](job)
    step = Step(a, b, z3.And(*fence)).job(after)
    if kind in ANSWERS:
        step.to(stale=z3.Or(a.stale, claim != job.claims), twice=z3.Or(a.twice, a.answered(claim)))
        known = z3.Or(a.answered(CLAIM), claim == CLAIM)
        step.that("answered", z3.ForAll(CLAIM, b.answered(CLAIM) == known))
    return step.to(**_remembered(a, kind, after)).relation()


def _remembered(a: Moment, kind: int, after: Job) -> dict[str, Any]:
    """Return what is recorded beside the job with a change, for the invariant to refer to."""
    match kind:
        case 3:  # GIVE_BACK
            return {"starts": a.starts - z3.If(a.job.wish, 0, 1)}
        case 4:  # LAPSE
            return {"robbed": z3.Or(a.robbed, a.until > a.now)}
        case 5:  # CANCEL
            return {"told": z3.Or(a.told, after.state == GONE), "wanted": z3.BoolVal(True)}
        case 7:  # REOPEN
            return dict.fromkeys(("fresh", "wanted"), z3.BoolVal(False))
        case _:
            return {}


def lasting(a: Moment, b: Moment, name: str) -> dict[str, Any]:
    """Return what holds between any state and the next."""
    kept = z3.And(a.job.state == b.job.state, a.job.claims == b.job.claims)
    final = one_of(a.job.state, DONE, GONE)
    if name != "reopen is heard":
        final = z3.Not(live(a.job.state))
    return {
        "an end is final": z3.Implies(final, kept),
        "tokens only grow": b.job.claims == a.job.claims + (1 if name == "claim" else 0),
        "a change of state moves the revision": z3.Implies(
            a.job.state != b.job.state, b.job.revision > a.job.revision
        ),
    }


@dataclass(frozen=True)
class Gap:
    """A move that breaks the invariant, and an example of a state before it."""

    move: str
    broken: str
    example: str


def gaps(rules: Rules, only: str = "") -> list[Gap]:
    """Return what any move breaks, or only one move; nothing if the protocol is proved."""
    a, b = Moment(""), Moment("'")
    always = z3.And(*invariant(a).values())
    found = [] if only else list(_gaps(begin(a), invariant(a), "at the start"))
    for name, relation in moves(a, b, rules):
        if only in ("", name):
            found += _gaps(z3.And(always, relation), invariant(b) | lasting(a, b, name), name)
    return found


def impossible(rules: Rules) -> list[str]:
    """Return the moves that are never possible, and about which a proof says nothing."""
    a, b = Moment(""), Moment("'")
    always = z3.And(*invariant(a).values())
    never = z3.BoolVal(False)
    found = {name: _example(z3.And(always, move), never) for name, move in moves(a, b, rules)}
    return [name for name, example in found.items() if " = " not in example]


def _gaps(given: Any, goals: dict[str, Any], move: str) -> Iterator[Gap]:
    if _example(given, z3.And(*goals.values())):
        for name, goal in goals.items():
            if example := _example(given, goal):
                yield Gap(move, name, example)


def _example(given: Any, goal: Any) -> str:
    """Return a state in which the assumption holds and the goal does not; empty if it follows."""
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(given, z3.Not(goal))
    answer = solver.check()
    if answer == z3.unsat:
        return ""
    if answer == z3.unknown:
        return f"not decided: {solver.reason_unknown()}"
    model = solver.model()
    return ", ".join(sorted(f"{d.name()} = {model[d]}" for d in model.decls() if not d.arity()))
