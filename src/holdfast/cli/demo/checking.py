"""Proof at the end: what the recorded histories say about every job that was submitted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.app import Holdfast
from holdfast.job import TERMINAL, Event, Job, State, Transition


class Verdict(msgspec.Struct, frozen=True):
    """What the histories say."""

    states: Counter[str]
    attempts: int
    problems: list[str]


async def check(app: Holdfast, submitted: Sequence[str]) -> Verdict:
    """Read the history of every job and look for one that was lost or ran twice at once."""
    jobs = await app.store.get(submitted)
    histories = await app.store.history(submitted)
    problems = [
        f"{job_id[:8]} {problem}"
        for job_id, job, history in zip(submitted, jobs, histories, strict=True)
        if (problem := _problem(job, history))
    ]
    attempts = sum(e.event is Event.CLAIM for history in histories for e in history)
    return Verdict(Counter(job.state for job in jobs if job), attempts, problems)


def _problem(job: Job | None, history: list[Transition]) -> str:
    if job is None or not history:
        return "is lost"
    if job.state not in TERMINAL:
        return f"has not ended, it is {job.state}"
    if history[0].event is not Event.SUBMIT or history[-1].to_state is not job.state:
        return "has a history that does not tell its beginning and end"
    claims = 0
    for before, after in itertools.pairwise(history):
        if after.from_state is not before.to_state:
            return f"went from {before.to_state} to {after.to_state} unseen"
        if after.event is Event.CLAIM:
            claims += 1
            if after.lease_version != claims or before.to_state is State.RUNNING:
                return "was claimed while somebody held it"
    return ""
