"""Whether a job that waits for others started too early, or was forgotten."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b

from holdfast.model.dependencies import verdict
from holdfast.model.job import TERMINAL, DedupeKey, DependencyKind, Event, Job, State, Transition
from holdfast.model.lifecycle import EDGES, TABLE
from holdfast.verify.findings import Kind, Violation

Histories = Mapping[str, Sequence[Transition]]
"""Of everything a job waits for; those that were deleted since are not there."""

_BEGINNINGS = (Event.CLAIM, Event.REOPEN)


def early(
    job: Job, history: Sequence[Transition], parents: Histories, *, slack: timedelta
) -> Iterator[Violation]:
    """Name a job that started before what it waits for had ended as it must."""
    start = next((edge for edge in history if edge.event in _BEGINNINGS), None)
    if start is None or start.event is Event.REOPEN or not parents:
        return  # it never ran, or an operator said that it shall
    ends = [_ends(edges, start.at + slack) for edges in parents.values()]
    if job.dependency_kind is DependencyKind.AFTER_ANY:
        if not any(ends) and len(parents) >= len(job.depends_on):
            yield Violation(Kind.DEPENDENT_EARLY, job.id, "started before any dependency had ended")
    elif not all(State.COMPLETED in end for end in ends):
        yield Violation(Kind.DEPENDENT_EARLY, job.id, "started before its dependencies completed")


def forgotten(job: Job, parents: Histories, *, before: datetime) -> Iterator[Violation]:
    """Name a job that still waits although all was decided before the given instant."""
    if job.state is not State.PENDING or job.held:
        return
    if any(edges[-1].at > before for edges in parents.values()):
        return
    states = [(parent, edges[-1].to_state) for parent, edges in parents.items()]
    if job.updated_at <= before and verdict(job.dependency_kind, states).outcome is not None:
        yield Violation(Kind.STUCK, job.id, "waits although its dependencies are decided")


def _ends(edges: Sequence[Transition], by: datetime) -> set[State]:
    return {edge.to_state for edge in edges if edge.to_state in TERMINAL and edge.at <= by}


FOR_EVER = float("inf")


class KeyRule:
    """Remembers until when each key is taken, in about 150 bytes; give it jobs by age."""

    def __init__(self, slack: timedelta) -> None:
        self._slack = slack.total_seconds()
        self._taken: dict[int, float] = {}

    def see(self, job: Job) -> Iterator[Violation]:
        """Name a job whose key was another's when it was submitted."""
        if job.dedupe is None:
            return
        name, ends = _digest(job.dedupe), job.dedupe.expires_at
        if self._taken.get(name, 0.0) > job.created_at.timestamp() + self._slack:
            told = f"has the key {job.dedupe.key!r} of {job.dedupe.scope}, which was another's"
            yield Violation(Kind.TWO_FOR_ONE_KEY, job.id, told)
        self._taken[name] = FOR_EVER if ends is None else ends.timestamp()


def _digest(key: DedupeKey) -> int:
    named = f"{key.scope}\0{key.key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(named, digest_size=8).digest())


History = Sequence[Transition]
Said = tuple[Kind, str]
NOTHING = timedelta(0)


def violations(job: Job, history: History, *, slack: timedelta = NOTHING) -> list[Violation]:
    """Name everything in a job's record that breaks a promise; empty when it is sound.

    ``slack`` is how far the clocks of those who wrote the record may have been apart.
    """
    if not history:
        return [Violation(Kind.RECORD, job.id, "has no history")]
    said = [one for check in _CHECKS for one in check(history)]
    said += _times(history, slack)
    said += _agreement(job, history)
    said += _cancel(job, history, slack)
    return [Violation(kind, job.id, text) for kind, text in said]


def agree(job: Job, history: History) -> bool:
    """Whether a job and its history are of the same instant, as far as both can tell."""
    if not history:
        return False
    last = history[-1]
    written = last.to_state, last.attempt, last.lease_version
    return written == (job.state, job.attempt, job.lease_version)


def _birth(history: History) -> Iterator[Said]:
    first = history[0]
    if (first.event, first.from_state, first.to_state) != (Event.SUBMIT, None, State.PENDING):
        yield Kind.RECORD, f"begins with {first.event} instead of submit"
    for edge in history[1:]:
        if edge.event is Event.SUBMIT:
            yield Kind.RECORD, "was submitted twice"


def _edges(history: History) -> Iterator[Said]:
    for edge in history:
        if edge.from_state in TERMINAL and edge.event is not Event.REOPEN:
            after_end = edge.event is Event.CLAIM
            kind = Kind.CLAIMED_AFTER_END if after_end else Kind.TERMINAL_CHANGED
            yield kind, f"{edge.event} after it ended {edge.from_state}"
        elif (edge.from_state, edge.to_state) not in EDGES:
            yield Kind.RECORD, f"no edge leads from {edge.from_state} to {edge.to_state}"
        elif (edge.from_state, edge.event, edge.to_state) not in TABLE:
            told = f"{edge.event} does not lead from {edge.from_state} to {edge.to_state}"
            yield Kind.RECORD, told


def _path(history: History) -> Iterator[Said]:
    for before, edge in itertools.pairwise(history):
        if edge.from_state is not before.to_state:
            told = f"{edge.event} starts at {edge.from_state}, but the job was {before.to_state}"
            ended = before.to_state in TERMINAL
            yield Kind.TERMINAL_CHANGED if ended else Kind.RECORD, told


def _claims(history: History) -> Iterator[Said]:
    version, is_open = 0, False
    for edge in history:
        if edge.event is Event.CLAIM:
            if is_open:
                yield Kind.DOUBLE_LEASE, f"claimed again while claim {version} was open"
            if edge.lease_version != version + 1:
                yield Kind.TOKEN_NOT_GROWING, f"claim {edge.lease_version} follows claim {version}"
            if not edge.worker:
                yield Kind.RECORD, f"claim {edge.lease_version} by nobody"
        elif edge.lease_version != version:
            told = f"{edge.event} under claim {edge.lease_version}, but the newest was {version}"
            yield Kind.STALE_WRITE, told
        version = edge.lease_version
        is_open = edge.to_state is State.RUNNING


_ATTEMPT_STEPS = {Event.CLAIM: 1, Event.GIVE_BACK: -1}


def _attempts(history: History) -> Iterator[Said]:
    attempt = 0
    for edge in history:
        expected = attempt + _ATTEMPT_STEPS.get(edge.event, 0)
        reset = edge.event is Event.REOPEN and edge.attempt == 0
        if edge.attempt != expected and not reset:
            yield Kind.RECORD, f"{edge.event} makes attempt {edge.attempt} of {attempt}"
        attempt = edge.attempt


_CHECKS: tuple[Callable[[History], Iterator[Said]], ...] = (
    *(_birth, _edges, _path, _claims),
    _attempts,
)


def _times(history: History, slack: timedelta) -> Iterator[Said]:
    for before, edge in itertools.pairwise(history):
        if edge.at < before.at - slack:
            yield Kind.RECORD, f"{edge.event} is older than {before.event} before it"


def _agreement(job: Job, history: History) -> Iterator[Said]:
    last = history[-1]
    if job.state is not last.to_state:
        yield Kind.RECORD, f"is {job.state}, but its history ends {last.to_state}"
    if (job.attempt, job.lease_version) != (last.attempt, last.lease_version):
        told = f"is at attempt {job.attempt}, claim {job.lease_version}, unlike its history"
        yield Kind.RECORD, told
    # One past a bound is always in the record: the bound only grows, when a job is reopened.
    most = max(edge.attempt for edge in history)
    if most > job.max_attempts:
        yield Kind.TOO_MANY_STARTS, f"reached attempt {most} of {job.max_attempts}"
    generations = 1 + sum(edge.event is Event.REOPEN for edge in history)
    if job.generation != generations:
        told = f"is generation {job.generation}, but was reopened {generations - 1} times"
        yield Kind.RECORD, told
    if job.state in TERMINAL and job.finished_at != last.at:
        yield Kind.RECORD, "did not finish at its last transition"


def _cancel(job: Job, history: History, slack: timedelta) -> Iterator[Said]:
    """What was asked to stop while it ran may still finish, but nothing else."""
    if job.cancel is None:
        return
    asked = job.cancel.at + slack
    for edge in history:
        if edge.at > asked and edge.to_state not in TERMINAL:
            yield Kind.CANCEL_LIE, f"was asked to stop and {edge.event} followed"
            return
