"""Jobs submitted together."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ValidationError
from holdfast.model.acceptance import MOST_JOBS, accept_batch, outside_references
from holdfast.model.job import Job, State
from holdfast.model.profiles import BULLMQ
from holdfast.model.submission import Defaults, Parent, Submission
from tests.model.making import NOW

pytestmark = pytest.mark.req("A-2", "M-9")


def _job(ref: str | None = None, *depends_on: object, **fields: object) -> Submission:
    return Submission(**{"type": "t", "ref": ref, "depends_on": depends_on, **fields})


def _accept(*submissions: Submission, **parents: Parent) -> list[Job | ValidationError]:
    return accept_batch(
        submissions,
        job_ids=[f"id-{n}" for n in range(len(submissions))],
        now=NOW,
        parents={name.replace("_", "-"): parent for name, parent in parents.items()},
    )


def _codes(answer: Job | ValidationError) -> list[str]:
    return [fault.code for fault in answer.faults] if isinstance(answer, ValidationError) else []


def test_jobs_name_each_other_by_ref_in_any_order() -> None:
    last, first, alone = _accept(_job("b", "a", "id-x"), _job("a"), _job(), id_x=Parent(2, 3))

    assert (("id-1", "id-x"), 4, State.PENDING) == (last.depends_on, last.depth, last.state)
    assert ((), 0, State.SCHEDULED) == (first.depends_on, first.depth, first.state)
    assert ["id-0", "id-1", "id-2"] == [last.id, first.id, alone.id]


@pytest.mark.req("M-5")
def test_priority_is_inherited_through_the_whole_graph_of_a_batch() -> None:
    answers = _accept(
        _job("d", "c", priority="BULK"),
        _job("c", "b", priority="LOW"),
        _job("b", "a", "id-x"),
        _job("a", priority="HIGH"),
        id_x=Parent(3, 0),
    )

    assert [1, 1, 1, 1] == [job.priority for job in answers]
    assert [3, 2, 1, 0] == [job.depth for job in answers]


def test_a_cycle_and_its_dependents_are_refused_by_name() -> None:
    a, b, tail, free = _accept(_job("a", "b"), _job("b", "a"), _job("c", "b"), _job("d"))

    assert [("depends_on", "CYCLE", "must not form a cycle: a -> b -> a")] == [
        (fault.field, fault.code, fault.message) for fault in a.faults
    ]
    assert ["CYCLE"] == _codes(b)
    assert [("REFUSED", "names 'b', a refused job")] == [
        (fault.code, fault.message) for fault in tail.faults
    ]
    assert isinstance(free, Job)


@pytest.mark.parametrize(
    ("graph", "codes"),
    [
        ({"a": "a"}, {"a": "CYCLE"}),
        ({"a": "b", "b": "c", "c": "a"}, dict.fromkeys("abc", "CYCLE")),
        ({"a": "b", "b": "a", "c": "d", "d": "c"}, dict.fromkeys("abcd", "CYCLE")),
        ({"t": "a", "a": "b", "b": "a"}, {"t": "REFUSED", "a": "CYCLE", "b": "CYCLE"}),
        ({"r": "d c", "d": "r", "c": "d"}, {"r": "CYCLE", "d": "CYCLE", "c": "REFUSED"}),
    ],
)
def test_every_job_on_a_cycle_or_dependent_on_it_is_refused(
    graph: dict[str, str], codes: dict[str, str]
) -> None:
    answers = _accept(*(_job(ref, *parents.split()) for ref, parents in graph.items()))

    assert codes == {ref: answer.faults[0].code for ref, answer in zip(graph, answers, strict=True)}


def test_a_refused_job_refuses_its_dependents_but_no_others() -> None:
    invalid, child, grandchild, neighbour = _accept(
        _job("a", max_attempts=0), _job("b", "a"), _job("c", "b", "b"), _job("d")
    )

    assert ["OUT_OF_RANGE"] == _codes(invalid)
    assert ["REFUSED"] == _codes(child)
    assert ["REFUSED"] == _codes(grandchild)
    assert isinstance(neighbour, Job)


@pytest.mark.req("A-3")
def test_faults_of_the_graph_and_of_the_fields_are_reported_together() -> None:
    answer, _ = _accept(_job("a", "b", priority=9, max_attempts=101), _job("b", "a"))

    assert ["CYCLE", "INVALID", "OUT_OF_RANGE"] == _codes(answer)


def test_a_ref_refers_to_the_first_job_that_has_it() -> None:
    first, second, child = _accept(_job("a"), _job("a", type="u"), _job(None, "a"))

    assert isinstance(first, Job)
    assert [("ref", "NOT_UNIQUE", "must be unique in its batch, got 'a' twice")] == [
        (fault.field, fault.code, fault.message) for fault in second.faults
    ]
    assert ("id-0",) == child.depends_on


def test_a_dependency_that_is_neither_in_batch_nor_store_is_missing() -> None:
    (answer,) = _accept(_job(None, "nowhere"))

    assert ["NOT_FOUND"] == _codes(answer)


@pytest.mark.parametrize("ref", [[], {}, 5, "", "x" * 257, "\ud800"])
def test_an_invalid_ref_is_a_fault_of_its_job_alone(ref: object) -> None:
    invalid, valid = _accept(_job(ref), _job("a"))

    assert ["ref"] == [fault.field for fault in invalid.faults]
    assert isinstance(valid, Job)


@pytest.mark.parametrize("junk", [5, "a", {"a": 1}, [1, "a"], [None], {"a"}])
def test_invalid_dependencies_are_a_fault_of_their_job_alone(junk: object) -> None:
    valid, invalid = _accept(_job("a"), Submission(type="t", depends_on=junk))

    assert ["depends_on"] == [fault.field for fault in invalid.faults]
    assert isinstance(valid, Job)


def test_references_out_of_the_batch_are_listed_once_in_order() -> None:
    batch = [_job("a", "x", "b"), _job("b", "y", "x"), _job([], "a", 7), _job(None)]

    assert ["x", "y"] == outside_references(batch)


@pytest.mark.parametrize(("count", "fine"), [(0, False), (1, True), (1000, True), (1001, False)])
def test_a_batch_holds_1_to_1000_jobs(count: int, fine: bool) -> None:
    batch = [_job()] * count

    if fine:
        assert count == len(_accept(*batch))
    else:
        with pytest.raises(ValidationError, match=f"1 to 1000 jobs, got {count}"):
            _accept(*batch)
    assert 1000 == MOST_JOBS


def test_another_limit_can_be_set() -> None:
    with pytest.raises(ValidationError, match="1 to 2 jobs, got 3"):
        accept_batch([_job()] * 3, job_ids=["1", "2", "3"], now=NOW, most=2)


def test_defaults_are_chosen_for_each_job() -> None:
    bull, plain = accept_batch(
        [_job(type="b"), _job(type="p")],
        job_ids=["1", "2"],
        now=NOW,
        defaults_for=lambda submission: (
            Defaults(profile=BULLMQ) if submission.type == "b" else Defaults()
        ),
    )

    assert (0, 2) == (bull.priority, plain.priority)


@pytest.mark.parametrize(("length", "deep"), [(101, 0), (102, 1)])
def test_a_chain_in_a_batch_is_at_most_a_hundred_levels_deep(length: int, deep: int) -> None:
    chain = [_job("0")] + [_job(str(n), str(n - 1)) for n in range(1, length)]

    answers = _accept(*reversed(chain))

    assert deep == len([code for answer in answers for code in _codes(answer)])
    assert deep == sum("TOO_DEEP" in _codes(answer) for answer in answers)


def test_a_batch_in_which_every_job_is_refused_is_refused_fast() -> None:
    refs = [str(n) for n in range(300)]
    batch = [_job("invalid", max_attempts=0)] + [
        _job(ref, "invalid", *refs[:n]) for n, ref in enumerate(refs)
    ]
    began = time.process_time()

    answers = _accept(*batch)

    assert all(isinstance(answer, ValidationError) for answer in answers)
    assert time.process_time() - began < 5


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", None]),
            st.lists(st.sampled_from(["a", "b", "c", "out"]), max_size=3),
            st.sampled_from([1, 0]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_accepted_jobs_depend_only_on_accepted_jobs(
    drawn: list[tuple[str | None, list[str], int]],
) -> None:
    batch = [_job(ref, *parents, max_attempts=attempts) for ref, parents, attempts in drawn]

    answers = _accept(*batch, out=Parent(2, 0))

    accepted = {answer.id for answer in answers if isinstance(answer, Job)}
    assert len(batch) == len(answers)
    for answer in answers:
        if isinstance(answer, Job):
            assert set(answer.depends_on) <= accepted | {"out"}
        else:
            assert answer.faults
