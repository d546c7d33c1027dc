"""How a job is kept after its end: which options are accepted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.errors import ValidationError
from holdfast.model.acceptance import accept, read
from holdfast.model.job import Job
from holdfast.model.removal import RemovalRule
from holdfast.model.results import submission_result
from holdfast.model.submission import Defaults
from tests.model.making import NOW

ON_REDIS = Defaults(removes_ended=True)


def accepted(defaults: Defaults = ON_REDIS, **fields: object) -> Job:
    return accept(read({"type": "mail", **fields}), job_id="1", now=NOW, defaults=defaults)


@pytest.mark.req("B-3")
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (True, True),
        (False, False),
        (0, 0),
        (1, 1),
        (10_000, 10_000),
        ({"count": 0}, RemovalRule(count=0)),
        ({"age": 60}, RemovalRule(age=60)),
        ({"age": "PT1M", "count": 5, "limit": 9}, RemovalRule(age=60, count=5, limit=9)),
        ({"age": 0.5}, RemovalRule(age=0.5)),
        (RemovalRule(age=60), RemovalRule(age=60)),
    ],
)
def test_options_are_kept_as_given(given: object, kept: object) -> None:
    job = accepted(remove_on_complete=given, remove_on_fail=given)

    assert (kept, kept) == (job.remove_on_complete, job.remove_on_fail)
    assert (type(kept), type(kept)) == (type(job.remove_on_complete), type(job.remove_on_fail))
    assert () == submission_result(job).warnings


@pytest.mark.req("B-3")
@pytest.mark.parametrize(
    ("given", "field", "code"),
    [
        (-1, "remove_on_fail", "OUT_OF_RANGE"),
        (10**9 + 1, "remove_on_fail", "OUT_OF_RANGE"),
        (1.5, "remove_on_fail", "INVALID"),
        ("true", "remove_on_fail", "INVALID"),
        ([], "remove_on_fail", "INVALID"),
        ({}, "remove_on_fail", "REQUIRED"),
        ({"limit": 3}, "remove_on_fail", "REQUIRED"),
        ({"count": -1}, "remove_on_fail.count", "OUT_OF_RANGE"),
        ({"count": True}, "remove_on_fail.count", "OUT_OF_RANGE"),
        ({"age": -1}, "remove_on_fail.age", "OUT_OF_RANGE"),
        ({"age": 1, "limit": 0}, "remove_on_fail.limit", "OUT_OF_RANGE"),
        ({"ages": 1}, "remove_on_fail.ages", "UNKNOWN_FIELD"),
    ],
)
def test_other_options_are_refused(given: object, field: str, code: str) -> None:
    with pytest.raises(ValidationError) as refused:
        accepted(remove_on_fail=given)

    assert [(field, code)] == [(fault.field, fault.code) for fault in refused.value.faults]


@pytest.mark.req("B-3")
@pytest.mark.parametrize("given", [10_001, {"count": 10_001}, {"count": 20_000, "age": 1}])
def test_keeping_very_many_jobs_is_accepted_with_a_warning(given: object) -> None:
    job = accepted(remove_on_complete=given, remove_on_fail=3)

    (warning,) = submission_result(job).warnings
    assert warning.startswith("remove_on_complete keeps ")


@pytest.mark.req("B-3")
def test_stores_without_these_options_refuse_them() -> None:
    with pytest.raises(ValidationError, match="retention of the app"):
        accepted(Defaults(), remove_on_complete=True)

    assert accepted(Defaults()).remove_on_complete is None


def test_age_without_fraction_is_whole_on_the_wire() -> None:
    job = accepted(remove_on_complete={"age": timedelta(minutes=1)})

    assert "60" == str(getattr(job.remove_on_complete, "age", None))
