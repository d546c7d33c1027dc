"""Every state of the submission model: keys, lost replies, dependencies that end meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.model.job import Job, State
from holdfast.store import Added, AddStatus
from tests.proofs.arriving import Rules, walk

if TYPE_CHECKING:
    from holdfast.store.memory.tables import Tables


@pytest.mark.req("M-2", "M-9", "S-12")
def test_no_order_of_submissions_loses_or_duplicates_a_job() -> None:
    found = walk(Rules())

    assert ("", ()) == (found.wrong, found.path)
    assert found.worlds > 400
    assert {"the child is judged", "the answer to a is lost"} <= found.named


def _conflict_with_oneself(tables: Tables, job: Job) -> Added:
    assert job.dedupe is not None
    held = tables.keys.get((job.dedupe.scope, job.dedupe.key))
    if held is None:
        return Added(AddStatus.ACCEPTED, job.id)
    own = held[1] == job.id
    return Added(AddStatus.CONFLICT if own else AddStatus.DUPLICATE, held[1])


def _only_after_success(job: Job, edges: dict[str, State | None]) -> bool:
    return all(state is State.COMPLETED for state in edges.values())


MUTANTS = {
    "a key is looked up, then written": (
        Rules(judged_and_written_at_once=False),
        "two jobs for one key",
    ),
    "a repeated submission conflicts with itself": (
        Rules(judge=_conflict_with_oneself),
        "was refused for its own key",
    ),
    "keys of different types collide": (
        Rules(scope=lambda client: ""),
        "was given the job of",
    ),
    "a dependency is read before its dependent is written": (
        Rules(linked_at_once=False),
        "no path leads to an end",
    ),
    "dependents are notified later, by a process that may die": (
        Rules(told_at_once=False),
        "no path leads to an end",
    ),
    "only the process that ended a dependency looks for its dependents": (
        Rules(swept=False),
        "no path leads to an end",
    ),
    "a failed dependency leaves its dependent waiting": (
        Rules(has_dependents=_only_after_success),
        "no path leads to an end",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_known_bug_of_submission_is_found_with_its_path(name: str) -> None:
    rules, wrong = MUTANTS[name]

    found = walk(rules)

    assert wrong in found.wrong, found
    assert 1 <= len(found.path) <= 12
