"""Checks recorded histories against the promises, after the fact.

Pure: give it jobs, their histories and what claims returned; it names what is wrong. It does
not ask the lifecycle how a job got there, only whether the record can be true.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from holdfast.job import TERMINAL, Event, State
from holdfast.lifecycle import EDGES, TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.job import Job, Transition


def violations(job: Job, history: Sequence[Transition]) -> list[str]:
    """Name everything in a job's record that breaks a promise; empty when it is sound."""
    if not history:
        return ["a job without a history"]
    checks = (_birth, _edges, _path, _claims, _attempts)
    found = [text for check in checks for text in check(history)]
    return found + list(_agreement(job, history))


def double_claims(taken: Iterable[Job]) -> list[str]:
    """Name every claim that was given to two claimers, from all the jobs that claims returned."""
    counted = Counter((job.id, job.lease_version) for job in taken)
    return [
        f"{id_}: claim {version} given {n} times" for (id_, version), n in counted.items() if n > 1
    ]


def lost(submitted: Iterable[str], found: Iterable[Job | None]) -> list[str]:
    """Name every job that was accepted and is not there."""
    there = {job.id for job in found if job is not None}
    return [job_id for job_id in submitted if job_id not in there]


def _birth(history: Sequence[Transition]) -> Iterator[str]:
    first = history[0]
    if (first.event, first.from_state, first.to_state) != (Event.SUBMIT, None, State.PENDING):
        yield f"begins with {first.event} instead of submit"
    for edge in history[1:]:
        if edge.event is Event.SUBMIT:
            yield "was submitted twice"


def _edges(history: Sequence[Transition]) -> Iterator[str]:
    for edge in history:
        if edge.from_state in TERMINAL and edge.event is not Event.REOPEN:
            yield f"{edge.event} after it ended {edge.from_state}"
        elif (edge.from_state, edge.to_state) not in EDGES:
            yield f"no edge leads from {edge.from_state} to {edge.to_state}"
        elif (edge.from_state, edge.event, edge.to_state) not in TABLE:
            yield f"{edge.event} does not lead from {edge.from_state} to {edge.to_state}"


def _path(history: Sequence[Transition]) -> Iterator[str]:
    for before, edge in itertools.pairwise(history):
        if edge.from_state is not before.to_state:
            yield f"{edge.event} starts at {edge.from_state}, but the job was {before.to_state}"
        if edge.at < before.at:
            yield f"{edge.event} is older than {before.event} before it"


def _claims(history: Sequence[Transition]) -> Iterator[str]:
    version, is_open = 0, False
    for edge in history:
        if edge.event is Event.CLAIM:
            if is_open:
                yield f"claimed again while claim {version} was open"
            if edge.lease_version != version + 1:
                yield f"claim {edge.lease_version} follows claim {version}"
            if not edge.worker:
                yield f"claim {edge.lease_version} by nobody"
        elif edge.lease_version != version:
            yield f"{edge.event} under claim {edge.lease_version}, but the newest was {version}"
        version = edge.lease_version
        is_open = edge.to_state is State.RUNNING


_ATTEMPT_STEPS = {Event.CLAIM: 1, Event.GIVE_BACK: -1}


def _attempts(history: Sequence[Transition]) -> Iterator[str]:
    attempt = 0
    for edge in history:
        expected = {attempt + _ATTEMPT_STEPS.get(edge.event, 0)}
        if edge.event is Event.REOPEN:
            expected.add(0)
        if edge.attempt not in expected:
            yield f"{edge.event} makes attempt {edge.attempt} of {attempt}"
        attempt = edge.attempt


def _agreement(job: Job, history: Sequence[Transition]) -> Iterator[str]:
    last = history[-1]
    if job.state is not last.to_state:
        yield f"is {job.state}, but its history ends {last.to_state}"
    if (job.attempt, job.lease_version) != (last.attempt, last.lease_version):
        yield f"is at attempt {job.attempt}, claim {job.lease_version}, unlike its history"
    # One past a bound is always in the record: the bound only grows, when a job is reopened.
    most = max(edge.attempt for edge in history)
    if most > job.max_attempts:
        yield f"reached attempt {most} of {job.max_attempts}"
    generations = 1 + sum(edge.event is Event.REOPEN for edge in history)
    if job.generation != generations:
        yield f"is generation {job.generation}, but was reopened {generations - 1} times"
    if job.state in TERMINAL and job.finished_at != last.at:
        yield "did not finish at its last transition"
