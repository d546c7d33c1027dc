"""Common bodies are decoded in one call, others field by field: the job is the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ValidationError
from holdfast.http.fields import raw_fields
from holdfast.http.submission_body import read_batch, read_submission, submission_of
from holdfast.model.acceptance import accept
from holdfast.model.job import Job
from holdfast.model.submission import Parent, Submission

NOW = datetime(2026, 11, 16, tzinfo=UTC)
PARENTS = {"p": Parent(2, 0)}
_ANY_VALUE = (
    st.none() | st.booleans() | st.integers(-1, 9) | st.floats() | st.sampled_from(["", "a", "é"])
)
_NAMES = (
    "queue",
    "priority",
    "max_attempts",
    "idempotency_key",
    "correlation_id",
    "limit_key",
    "ref",
)
_BODIES = st.fixed_dictionaries(
    {"type": st.just("a") | _ANY_VALUE, "payload": _ANY_VALUE | st.just({"n": [1]})},
    optional={
        **{name: _ANY_VALUE | st.sampled_from(["HIGH", "q", 3]) for name in _NAMES},
        "tags": st.dictionaries(st.sampled_from(["t", "holdfast:owner"]), _ANY_VALUE) | _ANY_VALUE,
        "depends_on": st.lists(st.sampled_from(["p", "q"]) | _ANY_VALUE) | _ANY_VALUE,
        "payload_encoding": st.sampled_from(["json", "base64", "x"]),
        "delay": _ANY_VALUE,
        "hold": _ANY_VALUE,
        "unknown": _ANY_VALUE,
        "faults": _ANY_VALUE,
    },
)
_VALID = st.fixed_dictionaries(
    {"type": st.just("a"), "payload": st.just({"n": [1]})},
    optional={
        **dict.fromkeys(
            ("queue", "correlation_id", "limit_key", "ref"), st.sampled_from(["x", "y"])
        ),
        "idempotency_key": st.just("k"),
        "priority": st.sampled_from(["HIGH", 3]),
        "max_attempts": st.integers(1, 9),
        "tags": st.just({"t": "v"}),
        "depends_on": st.just(["p"]),
    },
)


def _outcome(submission: Submission) -> Job | list[tuple[str, str, str]]:
    try:
        return accept(submission, job_id="j", now=NOW, parents=PARENTS)
    except ValidationError as error:
        return sorted((f.field, f.code, f.message) for f in error.faults)


@pytest.mark.req("A-3", "M-12")
@given(_VALID | _BODIES)
def test_both_ways_to_read_a_body_give_the_same_job_or_the_same_faults(
    fields: dict[str, object],
) -> None:
    body = json.dumps(fields).encode()
    if b"NaN" in body or b"Infinity" in body:
        with pytest.raises(ValidationError, match="JSON"):
            read_submission(body)
        return
    field_by_field = _outcome(submission_of(raw_fields(body)))

    assert field_by_field == _outcome(read_submission(body))
    (member,), atomic = read_batch(b'{"jobs":[' + body + b"]}")
    assert atomic
    assert field_by_field == _outcome(member)


def test_whole_numbers_of_a_removal_rule_may_have_a_fraction_of_zero() -> None:
    body = (
        b'{"type": "t", "payload": 1, "remove_on_fail": {"age": 1.5, "count": 5.0, "limit": 1e2}}'
    )

    for made in (submission_of(raw_fields(body)), read_submission(body)):
        assert {"age": 1.5, "count": 5, "limit": 100} == made.remove_on_fail
