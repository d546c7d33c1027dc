"""Whether a job that waits for others started too early, or was forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.model.dependencies import verdict
from holdfast.model.job import TERMINAL, DependencyKind, Event, Job, State, Transition
from holdfast.verify.findings import Finding, Kind

Histories = Mapping[str, Sequence[Transition]]
"""Of everything a job waits for; those that were deleted since are not there."""

_BEGINNINGS = (Event.CLAIM, Event.REOPEN)


def early(
    job: Job, history: Sequence[Transition], parents: Histories, *, slack: timedelta
) -> Iterator[Finding]:
    """Name a job that started before what it waits for had ended as it must."""
    start = next((edge for edge in history if edge.event in _BEGINNINGS), None)
    if start is None or start.event is Event.REOPEN or not parents:
        return  # it never ran, or an operator said that it shall
    ends = [_ends(edges, start.at + slack) for edges in parents.values()]
    if job.dependency_kind is DependencyKind.AFTER_ANY:
        if not any(ends) and len(parents) >= len(job.depends_on):
            yield Finding(Kind.DEPENDENT_EARLY, job.id, "started before any dependency had ended")
    elif not all(State.COMPLETED in end for end in ends):
        yield Finding(Kind.DEPENDENT_EARLY, job.id, "started before its dependencies completed")


def forgotten(job: Job, parents: Histories, *, before: datetime) -> Iterator[Finding]:
    """Name a job that still waits although all was decided before the given instant."""
    if job.state is not State.PENDING or job.held:
        return
    if any(edges[-1].at > before for edges in parents.values()):
        return
    states = [(parent, edges[-1].to_state) for parent, edges in parents.items()]
    if job.updated_at <= before and verdict(job.dependency_kind, states).outcome is not None:
        yield Finding(Kind.STUCK, job.id, "waits although its dependencies are decided")


def _ends(edges: Sequence[Transition], by: datetime) -> set[State]:
    return {edge.to_state for edge in edges if edge.to_state in TERMINAL and edge.at <= by}
