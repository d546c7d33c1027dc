"""What jobs wait for, and the rules of a new graph."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Fault
from holdfast.model.dependencies import (
    ENDED_SUFFICES,
    WAIT,
    Node,
    Verdict,
    breadth_fault,
    depth_fault,
    end_on_retry,
    inherited_priority,
    missing_fault,
    order,
    verdict,
)
from holdfast.model.job import LIVE, TERMINAL, DependencyKind, State

pytestmark = pytest.mark.req("M-9")

ALL_OF = [k for k in DependencyKind if k not in ENDED_SUFFICES]


@pytest.mark.parametrize("kind", ALL_OF)
@pytest.mark.parametrize("state", State)
def test_a_job_that_waits_for_all_runs_after_success_and_inherits_failure(
    kind: DependencyKind, state: State
) -> None:
    result = verdict(kind, [("a", State.COMPLETED), ("b", state)])

    if state is State.COMPLETED:
        assert Verdict(State.SCHEDULED, "all dependencies completed") == result
    elif state in TERMINAL:
        assert Verdict(state, f"dependency b ended {state}") == result
    else:
        assert WAIT == result


@pytest.mark.parametrize("state", State)
def test_a_job_that_waits_for_any_runs_after_any_end(state: State) -> None:
    result = verdict(DependencyKind.AFTER_ANY, [("a", State.RUNNING), ("b", state)])

    if state in TERMINAL:
        assert Verdict(State.SCHEDULED, f"dependency b ended {state}") == result
    else:
        assert WAIT == result


@pytest.mark.parametrize("kind", DependencyKind)
def test_a_job_that_waits_for_nothing_runs(kind: DependencyKind) -> None:
    assert State.SCHEDULED is verdict(kind, []).outcome


def test_the_first_dependency_that_did_not_complete_decides_even_while_others_run() -> None:
    parents = [("a", State.RUNNING), ("b", State.CANCELLED), ("c", State.FAILED)]

    assert Verdict(State.CANCELLED, "dependency b ended CANCELLED") == verdict(
        DependencyKind.AFTER, parents
    )


@given(
    st.sampled_from(DependencyKind),
    st.lists(st.sampled_from(State), min_size=1, max_size=6),
    st.integers(0, 5),
    st.sampled_from(sorted(LIVE)),
)
def test_a_verdict_is_not_changed_by_later_ends(
    kind: DependencyKind, states: list[State], late: int, before: State
) -> None:
    """An early and a late verdict agree on whether to run, so a missed one is harmless."""
    earlier = list(states)
    earlier[late % len(states)] = before
    names = [f"p{n}" for n in range(len(states))]

    early = verdict(kind, list(zip(names, earlier, strict=True)))
    later = verdict(kind, list(zip(names, states, strict=True)))

    if early.outcome is State.SCHEDULED:
        assert State.SCHEDULED is later.outcome
    elif early.outcome is not None:
        assert later.outcome in TERMINAL - {State.COMPLETED}


@pytest.mark.req("M-5")
def test_the_most_urgent_priority_is_inherited() -> None:
    assert 2 == inherited_priority(2, [])
    assert 0 == inherited_priority(2, [3, 0, 4])
    assert 2 == inherited_priority(2, [3, 4])


def _nodes(**graph: str) -> list[Node]:
    return [Node(label, tuple(parents.split())) for label, parents in graph.items()]


def test_jobs_are_ordered_behind_their_dependencies() -> None:
    labels, cycles = order(_nodes(d="b c", b="a", c="a outside", a="", e=""))

    assert [] == cycles
    assert ["a", "b", "c", "d", "e"] == sorted(labels)
    assert labels.index("a") < labels.index("b") < labels.index("d")
    assert labels.index("c") < labels.index("d")


@pytest.mark.parametrize(
    ("graph", "cycles"),
    [
        ({"a": "a"}, [["a"]]),
        ({"a": "b", "b": "a"}, [["a", "b"]]),
        ({"a": "b", "b": "c", "c": "a"}, [["a", "b", "c"]]),
        ({"a": "b", "b": "a", "c": "d", "d": "c"}, [["a", "b"], ["c", "d"]]),
        ({"t": "u", "u": "a", "a": "b", "b": "a"}, [["a", "b"]]),
        ({"a": "b", "b": "a", "t": "a"}, [["a", "b"]]),
        ({"a": "b c", "b": "a", "c": "a"}, [["a", "b"], ["a", "c"]]),
        ({"r": "d c", "d": "r", "c": "d"}, [["r", "d"]]),
    ],
)
def test_cycles_are_found_and_named(graph: dict[str, str], cycles: list[list[str]]) -> None:
    labels, found = order(_nodes(**graph))

    assert cycles == found
    assert sorted(graph) == sorted(labels)


def test_a_long_chain_is_ordered_without_recursion() -> None:
    nodes = [Node(str(n), (str(n + 1),)) for n in range(20_000)]

    labels, cycles = order([*nodes, Node("20000", ())])

    assert [] == cycles
    assert [str(n) for n in range(20_000, -1, -1)] == labels


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=4), min_size=n, max_size=n)
    )
)
def test_order_is_right_or_a_true_cycle_is_named(edges: list[list[int]]) -> None:
    graph = {str(n): tuple(map(str, parents)) for n, parents in enumerate(edges)}

    labels, cycles = order([Node(label, parents) for label, parents in graph.items()])

    assert sorted(graph) == sorted(labels)
    for cycle in cycles:
        for child, parent in itertools.pairwise([*cycle, cycle[0]]):
            assert parent in graph[child]
    if not cycles:
        for child, parents in graph.items():
            assert all(labels.index(parent) < labels.index(child) for parent in parents)


@pytest.mark.parametrize(("count", "fault"), [(999, False), (1000, False), (1001, True)])
def test_a_job_names_at_most_a_thousand_others(count: int, fault: bool) -> None:
    expected = Fault("depends_on", "TOO_MANY", f"must name at most 1000 jobs, got {count}")

    assert (expected if fault else None) == breadth_fault("depends_on", count, 1000)


@pytest.mark.parametrize(("depth", "fault"), [(99, False), (100, False), (101, True)])
def test_a_graph_is_at_most_a_hundred_levels_deep(depth: int, fault: bool) -> None:
    expected = Fault("depends_on", "TOO_DEEP", f"must be at most 100 levels deep, got {depth}")

    assert (expected if fault else None) == depth_fault("depends_on", depth, 100)


def test_unknown_dependencies_are_named_up_to_ten() -> None:
    names = [f"j{n}" for n in range(12)]

    assert Fault("depends_on", "NOT_FOUND", "must exist, got unknown 'j0', 'j1'") == missing_fault(
        "depends_on", names[:2]
    )
    assert missing_fault("depends_on", names).message.endswith("'j9' and 2 more")


@pytest.mark.req("M-9")
@pytest.mark.parametrize("state", State)
def test_a_job_after_all_runs_when_all_have_ended_in_any_state(state: State) -> None:
    result = verdict(DependencyKind.AFTER_ALL, [("a", State.FAILED), ("b", state)])

    expected = Verdict(State.SCHEDULED, "all dependencies ended")
    assert (expected if state in TERMINAL else Verdict(None)) == result


@pytest.mark.req("A-16", "M-9")
@pytest.mark.parametrize("state", State)
def test_a_retried_job_waits_for_what_has_not_completed(state: State) -> None:
    counted = {kind: end_on_retry(kind, state) for kind in DependencyKind}

    completed = state if state is State.COMPLETED else None
    ended = state if state in TERMINAL else None
    assert {k: ended if k in ENDED_SUFFICES else completed for k in DependencyKind} == counted


@pytest.mark.req("A-16", "M-9")
def test_a_retried_job_does_not_wait_for_a_deleted_dependency() -> None:
    assert {State.COMPLETED} == {end_on_retry(kind, None) for kind in DependencyKind}
