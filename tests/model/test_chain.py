"""A chain links its steps by refs, for one atomic batch."""

from __future__ import annotations

import pytest

from holdfast.errors import ValidationError
from holdfast.model.job import DependencyKind
from holdfast.model.submission import Submission, chained

A, B, C = (Submission(type=name) for name in "abc")


def test_each_step_waits_for_the_step_before() -> None:
    first, second = chained([A, B])

    assert () == first.depends_on
    assert first.dependency_type is None
    assert (first.ref,) == second.depends_on
    assert DependencyKind.FAN_IN is second.dependency_type


def test_step_after_a_list_waits_for_all_of_it() -> None:
    a, b, c = chained([[A, B], C])

    assert (a.ref, b.ref) == c.depends_on
    assert DependencyKind.FAN_IN is c.dependency_type


def test_refs_and_kinds_of_a_step_are_kept() -> None:
    named = Submission(type="a", ref="mine")
    after = Submission(type="b", depends_on=("x",), dependency_type=DependencyKind.AFTER_ANY)

    first, second = chained([named, after])

    assert "mine" == first.ref
    assert ("x", "mine") == second.depends_on
    assert DependencyKind.AFTER_ANY is second.dependency_type


def test_empty_step_is_refused_by_number() -> None:
    with pytest.raises(ValidationError) as refused:
        chained([A, []])

    assert ["steps[1]"] == [fault.field for fault in refused.value.faults]
