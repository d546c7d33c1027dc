"""The lease protocol as a small model whose states are all visited.

The moves use the real lifecycle and the real fence of the reference store. The model has one job
with a dependent, two workers, a reaper, a client that cancels, and messages that may be late,
lost or delivered twice. Each rule can be replaced, to show that its absence is detected.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.acceptance import accept
from holdfast.model.dependencies import verdict
from holdfast.model.job import TERMINAL, Event, Failure, FailureCategory, Job, Lease, State
from holdfast.model.submission import Parent, Submission
from holdfast.store import Change
from holdfast.store.memory.tables import matches, merged
from tests.proofs import walking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.proofs.walking import Walk

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAST = NOW
"""When an expired lease ended; a valid one ends after ``NOW``."""

ATTEMPTS = 2
WORKERS = ("w1", "w2")
MOST_MESSAGES = 2
MOST_CLAIMS = 3
"""A job can be given back forever; it is followed for this many claims."""

OUTCOMES = ("complete", "fail", "give back")


@dataclass(frozen=True)
class Rules:
    """The rules that the protocol depends on; each mutant breaks one of them."""

    matches: Callable[[Job, Change], bool] = matches
    may_answer: Callable[[Job, str], bool] = lifecycle.may_answer
    completed: Callable[..., Job] = lifecycle.completed
    failed: Callable[..., Job] = lifecycle.after_failure
    given_back: Callable[..., Job] = lifecycle.given_back
    lease_lost: Callable[..., Job] = lifecycle.lease_lost
    beats: Callable[[Job, str], bool] = lambda job, token: (
        job.state is State.RUNNING and job.lease is not None and job.lease.token == token
    )
    reaper_looks_again: bool = True
    """Whether reaping a lease is refused when it was renewed meanwhile."""
    expired: Callable[[Lease], bool] = lambda lease: lease.until is not None and lease.until <= NOW
    """Which leases the reaper ends."""
    runs_out: bool = True
    """Whether a claim expires when its worker dies."""
    token: Callable[[Job, str], str] = lambda job, worker: f"t{job.lease_version + 1}"
    """The token of a new claim."""
    claimed: Callable[..., Job] = lifecycle.claimed
    early: bool = False
    """Whether a worker reports an outcome before its work is done."""
    confirms: bool = False
    """Whether a client receives CANCELLED although nothing was written."""
    resends: bool = True
    """Whether a late outcome that is still valid is sent again."""
    cancels: Callable[..., Job] = lifecycle.cancel_requested
    release: Callable[..., Job] = lifecycle.dependency_ended


class Message(msgspec.Struct, frozen=True, dict=True):
    """A change in transit to the store."""

    sender: str
    change: Change
    outcome: str = ""

    @functools.cached_property
    def key(self) -> tuple[object, ...]:
        change = self.change
        return (self.sender, self.outcome, key(change.before), key(change.after), str(change.until))


class World(msgspec.Struct, frozen=True):
    """One state of the model."""

    job: Job
    child: Job
    held: tuple[Job | None, ...] = (None,) * len(WORKERS)
    """The job that each worker has claimed and not reported."""
    messages: tuple[Message, ...] = ()
    cancelled: str = ""
    """The response to the client."""
    claims_after_wish: int = 0
    starts: int = 0
    """Claims, minus those that were given back."""
    wrong: str = ""

    @property
    def is_end(self) -> bool:
        over = self.job.state in TERMINAL and self.child.state is not State.PENDING
        return over or is_told(self)

    @property
    def key(self) -> tuple[object, ...]:
        held = tuple(job and key(job) for job in self.held)
        messages = frozenset(message.key for message in self.messages)
        return (
            *(key(self.job), key(self.child), held, messages),
            *(self.cancelled, self.claims_after_wish, self.starts),
        )


def key(job: Job) -> tuple[object, ...]:
    """Return the part of a job that the protocol depends on."""
    lease = job.lease and (job.lease.token, job.lease.until)
    return (job.state, job.revision, job.attempt, lease, job.cancel is not None)


def begin() -> World:
    """Return a ready job and one that depends on it."""
    job = accept(Submission(type="work", max_attempts=ATTEMPTS), job_id="job", now=NOW)
    child = accept(
        Submission(type="work", depends_on=["job"]),
        job_id="child",
        now=NOW,
        parents={"job": Parent(2, 0)},
    )
    return World(_clean(job), _clean(child))


def is_told(world: World) -> bool:
    """Whether the job has been followed far enough."""
    return world.job.lease_version >= MOST_CLAIMS


def walk(rules: Rules) -> Walk:
    """Visit every state under these rules."""
    return walking.walk(begin(), lambda world: moves(world, rules))


def moves(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    """Yield every possible next state with the name of the move."""
    yield from _work(world, rules)
    yield from _maintain(world, rules)
    yield from _cancel(world, rules)
    for message in world.messages:
        rest = tuple(m for m in world.messages if m is not message)
        heard = _deliver(replace(world, messages=rest), message, rules)
        yield f"{message.sender} is heard", heard
        if len(heard.messages) < MOST_MESSAGES:
            again = replace(heard, messages=(*heard.messages, message))
            yield f"{message.sender} is heard, the answer is lost", again
        yield f"{message.sender} is not heard", replace(world, messages=rest)


def _work(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    for index, worker in enumerate(WORKERS):
        mine = world.held[index]
        if mine is None and world.job.state is State.SCHEDULED and not is_told(world):
            yield f"{worker} claims", _claimed(world, index, rules)
        if mine is None or mine.lease is None:
            continue
        if rules.beats(world.job, mine.lease.token) and world.job.lease is not None:
            lease = replace(world.job.lease, until=NOW + world.job.lease_ttl)
            foreign = (
                "a lease was renewed by a worker that lost it" if lease.worker != worker else ""
            )
            yield (
                f"{worker} beats",
                replace(world, job=_with(world.job, lease=lease), wrong=foreign),
            )
        yield f"{worker} dies", _hold(world, index, None)
        if len(world.messages) < MOST_MESSAGES:
            for outcome in OUTCOMES:
                said = Message(worker, Change(mine, _decided(mine, outcome, rules)), outcome)
                left = world if rules.early else _hold(world, index, None)
                yield f"{worker} says {outcome}", _send(left, said)


def _claimed(world: World, index: int, rules: Rules) -> World:
    worker = WORKERS[index]
    token = rules.token(world.job, worker)
    taken = rules.claimed(world.job, token=token, worker=worker, now=NOW)
    after = replace(
        _hold(world, index, _clean(taken)),
        job=_clean(taken),
        starts=world.starts + 1,
        claims_after_wish=world.claims_after_wish + (world.cancelled != ""),
    )
    return _checked(world, after)


def _maintain(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    job, lease = world.job, world.job.lease
    if job.state is State.RUNNING and lease is not None and lease.until is not None:
        if lease.until > NOW and rules.runs_out:
            over = replace(lease, until=PAST)
            yield "the lease runs out", replace(world, job=_with(job, lease=over))
        if rules.expired(lease) and len(world.messages) < MOST_MESSAGES:
            until = lease.until if rules.reaper_looks_again else None
            taken = Change(job, rules.lease_lost(job, now=NOW), until)
            yield "the reaper looks", _send(world, Message("reaper", taken))
    if job.state is State.RETRYING:
        yield "the job is due", replace(world, job=_clean(lifecycle.due(job, now=NOW)))
    judged = verdict(world.child.dependency_kind, [("job", job.state)])
    if world.child.state is State.PENDING and judged.outcome is not None:
        child = _clean(rules.release(world.child, judged, now=NOW))
        yield "the child is released", _checked(world, replace(world, child=child))


def _cancel(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    if world.cancelled or len(world.messages) >= MOST_MESSAGES:
        return
    after = rules.cancels(world.job, reason="", force=False, now=NOW)
    if after is not world.job and not any(m.sender == "client" for m in world.messages):
        yield "a client cancels", _send(world, Message("client", Change(world.job, after)))


def _deliver(world: World, message: Message, rules: Rules) -> World:
    change = message.change
    if rules.matches(world.job, change):
        after = _clean(merged(world.job, change.after))
        back = sum(edge.event is Event.GIVE_BACK for edge in change.after.trail)
        written = replace(world, job=after, starts=world.starts - back)
        if message.sender == "client":
            told = "CANCELLED" if after.state is State.CANCELLED else "CANCEL_REQUESTED"
            written = replace(written, cancelled=told)
        return _checked(world, written, message)
    return _refused(world, message, rules)


def _refused(world: World, message: Message, rules: Rules) -> World:
    """Return the state after a refusal: a worker whose outcome is still valid sends it again."""
    lease = message.change.before.lease
    if message.sender == "client" and rules.confirms:
        return _checked(world, replace(world, cancelled="CANCELLED"))
    if message.outcome == "" or lease is None:
        return world
    if not rules.resends or not rules.may_answer(world.job, lease.token):
        welcome = lifecycle.may_answer(world.job, lease.token)
        return replace(world, wrong="a valid outcome was dropped" if welcome else "")
    job = world.job
    if job.state is not State.RUNNING:
        job = lifecycle.resumed(job, now=NOW)
    again = Change(world.job, _decided(job, message.outcome, rules))
    return _send(world, Message(message.sender, again, message.outcome))


def _decided(job: Job, outcome: str, rules: Rules) -> Job:
    if outcome == "complete":
        return rules.completed(job, b"1", now=NOW)
    if outcome == "give back":
        return rules.given_back(job, now=NOW)
    failure = Failure(category=FailureCategory.TEMPORARY, message="")
    return rules.failed(job, failure, now=NOW)


# --- what must never happen ----------------------------------------------------------------


def _checked(before: World, after: World, message: Message | None = None) -> World:
    """Return a state with the property that the last move broke."""
    checks = (_terminal, _starts, _fence, _early, _token, _lapse, _cancel_lie, _early_child)
    wrong = next((text for check in checks if (text := check(before, after, message))), "")
    return replace(after, wrong=wrong)


def _terminal(before: World, after: World, message: Message | None) -> str:
    changed = before.job.state in TERMINAL and key(before.job) != key(after.job)
    return f"{before.job.state} became {after.job.state}" if changed else ""


def _starts(before: World, after: World, message: Message | None) -> str:
    if max(after.starts, after.job.attempt) > ATTEMPTS:
        return f"start {max(after.starts, after.job.attempt)} of {ATTEMPTS}"
    if after.job.attempt > after.starts:
        return f"{after.starts} starts count as {after.job.attempt} attempts"
    return ""


def _token(before: World, after: World, message: Message | None) -> str:
    was, now = before.job.lease_version, after.job.lease_version
    grown = message is None and after.job.state is State.RUNNING and after.starts > before.starts
    return f"claim {was} was followed by {now}" if now != was + grown else ""


def _early(before: World, after: World, message: Message | None) -> str:
    """A worker's outcome is written while the handler still runs."""
    if message is None or not message.outcome:
        return ""
    mine = before.held[WORKERS.index(message.sender)]
    claimed = message.change.before.lease
    if mine is not None and mine.lease == claimed:
        return f"{message.sender} was received before its work was done"
    return ""


def _fence(before: World, after: World, message: Message | None) -> str:
    if message is None or not message.outcome or before.job.lease is None:
        return ""
    claimed = message.change.before.lease
    newest = before.job.lease
    holder = next((w for w in WORKERS if w == message.sender), "")
    if claimed is None or newest.worker != holder or claimed.version != newest.version:
        return f"{message.sender} reported under the lease of {newest.worker}"
    return "an outcome was written twice" if newest.until is None else ""


def _lapse(before: World, after: World, message: Message | None) -> str:
    lease = before.job.lease
    taken = message is not None and message.sender == "reaper"
    if taken and lease is not None and lease.until is not None and lease.until > NOW:
        return "a valid lease was taken back"
    return ""


def _cancel_lie(before: World, after: World, message: Message | None) -> str:
    if after.cancelled == "CANCELLED" and after.job.state is not State.CANCELLED:
        return f"reported as cancelled, but is {after.job.state}"
    if after.claims_after_wish:
        return "asked to stop, but claimed again"
    return ""


def _early_child(before: World, after: World, message: Message | None) -> str:
    if after.child.state is State.SCHEDULED and after.job.state is not State.COMPLETED:
        return f"the child starts while its dependency is {after.job.state}"
    return ""


def _send(world: World, message: Message) -> World:
    return replace(world, messages=(*world.messages, message))


def _hold(world: World, index: int, job: Job | None) -> World:
    return replace(world, held=(*world.held[:index], job, *world.held[index + 1 :]))


def _with(job: Job, **changes: object) -> Job:
    return replace(job, **changes)


def _clean(job: Job) -> Job:
    return replace(job, trail=())
