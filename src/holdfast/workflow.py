"""Jobs one after another: links the steps of a chain by local names, for one atomic batch."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.errors import Fault, ValidationError
from holdfast.form import Submission
from holdfast.job import DependencyKind

Step = Submission | Sequence[Submission]
"""One job, or several that run side by side."""


def chained(steps: Sequence[Step]) -> list[Submission]:
    """Return the submissions of a chain, each waiting for all jobs of the step before it.

    After a single job the next step waits for that job (CHAIN). After a list it waits for
    all of the list and for everything those jobs spawned (FAN_IN).
    """
    linked: list[Submission] = []
    before: tuple[str, ...] = ()
    kind = DependencyKind.CHAIN
    for number, step in enumerate(steps, 1):
        group = (step,) if isinstance(step, Submission) else tuple(step)
        if not group:
            raise ValidationError([Fault(f"steps[{number - 1}]", "REQUIRED", "must hold a job")])
        named = [_linked(job, f"{number}.{i}", before, kind) for i, job in enumerate(group, 1)]
        before = tuple(job.ref for job in named if job.ref)
        kind = DependencyKind.CHAIN if isinstance(step, Submission) else DependencyKind.FAN_IN
        linked += named
    return linked


def _linked(
    job: Submission, name: str, before: tuple[str, ...], kind: DependencyKind
) -> Submission:
    return msgspec.structs.replace(
        job,
        ref=job.ref or f"step {name}",
        depends_on=(*job.depends_on, *before),
        dependency_type=job.dependency_type or (kind if before else None),
    )
