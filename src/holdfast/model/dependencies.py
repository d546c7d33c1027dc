"""What jobs wait for: the verdict on a waiting job, and the rules of a new graph.

AFTER and CHAIN run when every dependency completed, and end like the first one that did not.
AFTER_ANY runs when any dependency has ended in any state, AFTER_ALL when all have. FAN_IN is AFTER
over the job it names and everything that job spawned. FAN_OUT marks a spawned job, without a wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.errors import Fault
from holdfast.model.job import TERMINAL, DependencyKind, State
from holdfast.model.times import shown

ENDED_SUFFICES = frozenset({DependencyKind.AFTER_ANY, DependencyKind.AFTER_ALL})
"""The kinds for which a dependency may end in any state."""

MOST_LISTED = 10
"""How many missing dependencies a message names."""


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a waiting job: it waits on (None), runs (SCHEDULED), or ends in a state."""

    outcome: State | None
    reason: str = ""


WAIT = Verdict(None)


def verdict(kind: DependencyKind, parents: Sequence[tuple[str, State]]) -> Verdict:
    """Decide on a waiting job by its dependencies: (id, state), in the order of ``depends_on``."""
    if kind is DependencyKind.AFTER_ANY and parents:
        return _after_any(parents)
    if kind is DependencyKind.AFTER_ALL:
        return _after_all(parents)
    for parent, state in parents:
        if state in TERMINAL and state is not State.COMPLETED:
            return Verdict(state, f"dependency {parent} ended {state}")
    if all(state is State.COMPLETED for _, state in parents):
        return Verdict(State.SCHEDULED, "all dependencies completed")
    return WAIT


def _after_any(parents: Sequence[tuple[str, State]]) -> Verdict:
    for parent, state in parents:
        if state in TERMINAL:
            return Verdict(State.SCHEDULED, f"dependency {parent} ended {state}")
    return WAIT


def _after_all(parents: Sequence[tuple[str, State]]) -> Verdict:
    if all(state in TERMINAL for _, state in parents):
        return Verdict(State.SCHEDULED, "all dependencies ended")
    return WAIT


def end_on_retry(kind: DependencyKind, state: State | None) -> State | None:
    """Return the end of a dependency that counts for a dependent that is retried; None: open.

    COMPLETED counts for every kind. Where the dependent does not need its dependencies to
    complete, any end counts; else it waits for them to be retried. A dependency that was deleted
    (its state is None) is not waited for.
    """
    if state is None or state is State.COMPLETED:
        return State.COMPLETED
    return state if kind in ENDED_SUFFICES and state in TERMINAL else None


def inherited_priority(own: int, parents: Iterable[int]) -> int:
    """Return the most urgent (lowest) of a job's own priority and those of its dependencies."""
    return min((own, *parents))


class Node(msgspec.Struct, frozen=True):
    """A new job in a graph: its label, and the labels it depends on."""

    label: str
    depends_on: tuple[str, ...]


def order(nodes: Sequence[Node]) -> tuple[list[str], list[list[str]]]:
    """Sort new jobs so that each comes after its dependencies, and list the cycles found.

    Labels that are not in ``nodes`` belong to jobs outside the graph and are ignored.
    """
    graph = {node.label: node.depends_on for node in nodes}
    done: dict[str, None] = {}
    cycles: list[list[str]] = []
    for node in nodes:
        if node.label not in done:
            _visit(node.label, graph, done, cycles)
    return list(done), cycles


def _visit(
    start: str,
    graph: Mapping[str, tuple[str, ...]],
    done: dict[str, None],
    cycles: list[list[str]],
) -> None:
    """Depth first without recursion: a batch may hold a chain of a thousand jobs."""
    path = [start]
    parents = {start: iter(graph[start])}
    while path:
        label = path[-1]
        parent = next((p for p in parents[label] if p in graph and p not in done), None)
        if parent is None:
            done[path.pop()] = None
            del parents[label]
        elif parent in parents:
            cycles.append(path[path.index(parent) :])
        else:
            path.append(parent)
            parents[parent] = iter(graph[parent])


def breadth_fault(field: str, count: int, limit: int) -> Fault | None:
    """Return the fault of a job with too many dependencies, if it has too many."""
    if count <= limit:
        return None
    return Fault(field, "TOO_MANY", f"must name at most {limit} jobs, got {count}")


def depth_fault(field: str, depth: int, limit: int) -> Fault | None:
    """Return the fault of a job that is too deep in its graph, if it is."""
    if depth <= limit:
        return None
    return Fault(field, "TOO_DEEP", f"must be at most {limit} levels deep, got {depth}")


def missing_fault(field: str, missing: Sequence[str]) -> Fault:
    """Return the fault of a job whose dependencies do not exist."""
    listed = ", ".join(map(shown, missing[:MOST_LISTED]))
    more = f" and {len(missing) - MOST_LISTED} more" if len(missing) > MOST_LISTED else ""
    return Fault(field, "NOT_FOUND", f"must exist, got unknown {listed}{more}")
