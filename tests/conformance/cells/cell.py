"""The list of cells, and what they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.errors import IllegalTransitionError
from holdfast.model.job import Job
from holdfast.store import Change, Claim, Fence
from tests.conformance.decisions import DECISIONS
from tests.conformance.hand import MANY, job_id
from tests.conformance.situations import QUEUES
from tests.conformance.world import held

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.conformance.world import World

    Cell = Callable[[World], Awaitable[object]]

STRANGER = job_id("nobody")
CELLS: dict[str, Cell] = {}


def cell(name: str) -> Callable[[Cell], Cell]:
    """Put what follows on the list."""

    def keep(cell: Cell) -> Cell:
        assert name not in CELLS
        CELLS[name] = cell
        return cell

    return keep


FENCES: dict[str, Callable[[Job], Fence]] = {
    "good": held,
    "stale": lambda job: Fence(job.id, "token at 00:56:40"),
    "empty": lambda job: Fence(job.id, ""),
    "missing": lambda job: Fence(STRANGER, held(job).token),
}


def _forged(job: Job) -> Job:
    return replace(job, lease=replace(job.lease, token="forged")) if job.lease else job


BEFORES: dict[str, Callable[[Job], Job]] = {
    "good": lambda job: job,
    "stale": lambda job: replace(job, revision=job.revision - 1),
    "ahead": lambda job: replace(job, revision=job.revision + 1),
    "forged": _forged,
    "missing": lambda job: replace(job, id=STRANGER),
}


def want(
    limit: int = MANY,
    queues: Sequence[str] = QUEUES,
    types: tuple[str, ...] | None = None,
) -> Claim:
    """A claim of everything, unless arguments narrow it."""
    return Claim(queues=tuple(queues), limit=limit, worker="wx", token="tx", types=types)


def changes_of(world: World, jobs: Sequence[Job], decision: str, before: str) -> list[Change]:
    """Every change of this kind that the lifecycle allows, decided on a true or false job."""
    changes = []
    for job in map(BEFORES[before], jobs):
        try:
            changes.append(Change(job, DECISIONS[decision](job, world.now)))
        except IllegalTransitionError:
            continue
    return changes
