"""Proof at the end: what the recorded histories say about every job that was submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.app import Holdfast
from holdfast.model.job import LIVE, Event
from holdfast.verify import Witness, verify


class Verdict(msgspec.Struct, frozen=True):
    """What the histories say."""

    states: Mapping[str, int]
    attempts: int
    problems: list[str]


async def check(app: Holdfast, submitted: Sequence[str]) -> Verdict:
    """Judge every job by its history, and look for one that was lost or has not ended."""
    witness = Witness()
    witness.accepted = set(submitted)
    report = await verify(app.store, witness)
    unfinished = [f"{count} are still {s}" for s, count in report.states.items() if s in LIVE]
    problems = [str(finding) for finding in report.findings] + unfinished
    return Verdict(report.states, report.events.get(Event.CLAIM, 0), problems)
