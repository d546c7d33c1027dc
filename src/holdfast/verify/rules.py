"""The rules for one job: its own record, its dependencies, its idempotency key.

Each rule is pure and reports what it finds broken.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b

from holdfast.model.dependencies import end_on_retry, verdict
from holdfast.model.job import TERMINAL, DedupeKey, DependencyKind, Event, Job, State, Transition
from holdfast.model.lifecycle import EDGES, TABLE
from holdfast.verify.findings import Kind, Violation

History = Sequence[Transition]
Histories = Mapping[str, History]
"""The histories of a job's dependencies by id; deleted dependencies are missing."""

Problem = tuple[Kind, str]
NO_SLACK = timedelta(0)
FOREVER = float("inf")


def violations(job: Job, history: History, *, slack: timedelta = NO_SLACK) -> list[Violation]:
    """Return every broken promise in a job's record; none when the record is sound.

    ``slack`` is how far the clocks of the processes that wrote the record may be apart.
    """
    if not history:
        return [Violation(Kind.RECORD, job.id, "has no history")]
    problems = [problem for check in _CHECKS for problem in check(history)]
    problems += _times(history, slack)
    problems += _agreement(job, history)
    problems += _cancellation(job, history, slack)
    return [Violation(kind, job.id, text) for kind, text in problems]


def matches_history(job: Job, history: History) -> bool:
    """Whether a job and its history show the same state, attempt and claim."""
    if not history:
        return False
    last = history[-1]
    recorded = last.to_state, last.attempt, last.lease_version
    return recorded == (job.state, job.attempt, job.lease_version)


def started_early(
    job: Job, history: History, parents: Histories, *, slack: timedelta
) -> Iterator[Violation]:
    """Report a job that started before its dependencies had ended as required."""
    if waited_for_children(history):  # at its first start there were none
        return
    for start in _starts_after_waiting(history) if parents else ():
        ends = [_ends(edges, start.at + slack) for edges in parents.values()]
        if job.dependency_kind is DependencyKind.AFTER_ANY:
            if not any(ends) and len(parents) >= len(job.depends_on):
                text = "started before any dependency had ended"
                yield Violation(Kind.DEPENDENT_EARLY, job.id, text)
        elif job.dependency_kind is DependencyKind.AFTER_ALL:
            if not all(ends):
                text = "started before all dependencies had ended"
                yield Violation(Kind.DEPENDENT_EARLY, job.id, text)
        elif not all(State.COMPLETED in end for end in ends):
            text = "started before its dependencies completed"
            yield Violation(Kind.DEPENDENT_EARLY, job.id, text)


def waited_for_children(history: History) -> bool:
    """Whether a job waited for jobs that it had spawned; only those count since then."""
    return any(edge.event is Event.WAIT for edge in history)


def _starts_after_waiting(history: History) -> Iterator[Transition]:
    """Yield the first claim after each time the job was PENDING."""
    waited = False
    for edge in history:
        if edge.to_state is State.PENDING:
            waited = True
        elif edge.event in (Event.CLAIM, Event.REOPEN):
            if waited and edge.event is Event.CLAIM:
                yield edge
            waited = False


def left_waiting(job: Job, parents: Histories, *, before: datetime) -> Iterator[Violation]:
    """Report a job that waits although its dependencies were decided before an instant."""
    if job.state is not State.PENDING or job.held:
        return
    if any(edges[-1].at > before for edges in parents.values()):
        return
    states = [(parent, _seen_end(job, edges[-1])) for parent, edges in parents.items()]
    if job.updated_at <= before and verdict(job.dependency_kind, states).outcome is not None:
        text = "is PENDING although its dependencies are decided"
        yield Violation(Kind.STUCK, job.id, text)


def _seen_end(job: Job, last: Transition) -> State:
    """Return the state of a dependency as a waiting job sees it.

    A job that waits again after a retry does not see how its dependencies ended before.
    """
    if job.generation > 1 and last.at <= job.updated_at:
        return end_on_retry(job.dependency_kind, last.to_state) or State.PENDING
    return last.to_state


class KeyRule:
    """Remembers until when each key is taken, in about 150 bytes each; needs jobs by age."""

    def __init__(self, slack: timedelta) -> None:
        self._slack = slack.total_seconds()
        self._taken: dict[int, float] = {}

    def check(self, job: Job) -> Iterator[Violation]:
        """Report a job whose key another job held when it was submitted."""
        if job.dedupe is None:
            return
        digest, expires_at = _digest(job.dedupe), job.dedupe.expires_at
        if self._taken.get(digest, 0.0) > job.created_at.timestamp() + self._slack:
            text = f"has the key {job.dedupe.key!r} of {job.dedupe.scope}, which another job held"
            yield Violation(Kind.TWO_FOR_ONE_KEY, job.id, text)
        self._taken[digest] = FOREVER if expires_at is None else expires_at.timestamp()


def _ends(edges: History, by: datetime) -> set[State]:
    return {edge.to_state for edge in edges if edge.to_state in TERMINAL and edge.at <= by}


def _digest(key: DedupeKey) -> int:
    name = f"{key.scope}\0{key.key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest())


def _submission(history: History) -> Iterator[Problem]:
    first = history[0]
    if (first.event, first.from_state, first.to_state) != (Event.SUBMIT, None, State.PENDING):
        yield Kind.RECORD, f"begins with {first.event} instead of submit"
    for edge in history[1:]:
        if edge.event is Event.SUBMIT:
            yield Kind.RECORD, "was submitted twice"


def _edges(history: History) -> Iterator[Problem]:
    for edge in history:
        if edge.from_state in TERMINAL and edge.event is not Event.REOPEN:
            is_claim = edge.event is Event.CLAIM
            kind = Kind.CLAIMED_AFTER_END if is_claim else Kind.TERMINAL_CHANGED
            yield kind, f"{edge.event} after it was {edge.from_state}"
        elif (edge.from_state, edge.to_state) not in EDGES:
            yield Kind.RECORD, f"no edge leads from {edge.from_state} to {edge.to_state}"
        elif (edge.from_state, edge.event, edge.to_state) not in TABLE:
            text = f"{edge.event} does not lead from {edge.from_state} to {edge.to_state}"
            yield Kind.RECORD, text


def _continuity(history: History) -> Iterator[Problem]:
    for before, edge in itertools.pairwise(history):
        if edge.from_state is not before.to_state:
            text = f"{edge.event} starts at {edge.from_state}, but the job was {before.to_state}"
            ended = before.to_state in TERMINAL
            yield Kind.TERMINAL_CHANGED if ended else Kind.RECORD, text


def _claims(history: History) -> Iterator[Problem]:
    version, is_open = 0, False
    for edge in history:
        if edge.event is Event.CLAIM:
            if is_open:
                yield Kind.DOUBLE_LEASE, f"claimed again while claim {version} was open"
            if edge.lease_version != version + 1:
                yield Kind.TOKEN_NOT_GROWING, f"claim {edge.lease_version} follows claim {version}"
            if not edge.worker:
                yield Kind.RECORD, f"claim {edge.lease_version} names no worker"
        elif edge.lease_version != version:
            text = f"{edge.event} under claim {edge.lease_version}, but the newest was {version}"
            yield Kind.STALE_WRITE, text
        version = edge.lease_version
        is_open = edge.to_state is State.RUNNING


_ATTEMPT_STEPS = {Event.CLAIM: 1, Event.GIVE_BACK: -1, Event.WAIT: -1}


def _attempts(history: History) -> Iterator[Problem]:
    attempt = 0
    for edge in history:
        expected = attempt + _ATTEMPT_STEPS.get(edge.event, 0)
        reset = edge.event is Event.REOPEN and edge.attempt == 0
        if edge.attempt != expected and not reset:
            yield Kind.RECORD, f"{edge.event} leads from attempt {attempt} to {edge.attempt}"
        attempt = edge.attempt


_CHECKS: tuple[Callable[[History], Iterator[Problem]], ...] = (
    *(_submission, _edges, _continuity, _claims),
    _attempts,
)


def _times(history: History, slack: timedelta) -> Iterator[Problem]:
    for before, edge in itertools.pairwise(history):
        if edge.at < before.at - slack:
            yield Kind.RECORD, f"{edge.event} is older than {before.event} before it"


def _agreement(job: Job, history: History) -> Iterator[Problem]:
    last = history[-1]
    if job.state is not last.to_state:
        yield Kind.RECORD, f"is {job.state}, but its history ends with {last.to_state}"
    if (job.attempt, job.lease_version) != (last.attempt, last.lease_version):
        text = f"is at attempt {job.attempt}, claim {job.lease_version}, unlike its history"
        yield Kind.RECORD, text
    limit = job.max_attempts
    for edge in history:
        if edge.event is Event.REOPEN:  # grants one attempt if none is left
            limit = max(job.max_attempts, edge.attempt + 1)
        if edge.attempt > limit:
            yield Kind.TOO_MANY_STARTS, f"reached attempt {edge.attempt} of {limit}"
            break
    generations = 1 + sum(edge.event is Event.REOPEN for edge in history)
    if job.generation != generations:
        text = f"is generation {job.generation}, but was reopened {generations - 1} times"
        yield Kind.RECORD, text
    if job.state in TERMINAL and job.finished_at != last.at:
        yield Kind.RECORD, "did not finish at its last transition"


def _cancellation(job: Job, history: History, slack: timedelta) -> Iterator[Problem]:
    """A job that was asked to stop while it ran may end, and nothing else."""
    if job.cancel is None:
        return
    requested = job.cancel.at + slack
    for edge in history:
        if edge.at > requested and edge.to_state not in TERMINAL:
            yield Kind.CANCEL_IGNORED, f"was asked to stop, but {edge.event} followed"
            return
