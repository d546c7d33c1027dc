"""Arbitrary values in any field are refused and never crash."""

from __future__ import annotations

import contextlib
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import ValidationError
from holdfast.model.acceptance import FIELDS, accept, accept_batch, outside_references, read
from holdfast.model.job import Job
from holdfast.model.policy import Backoff
from holdfast.model.submission import Spawner, Submission
from tests.model.making import ID, NOW

pytestmark = pytest.mark.req("A-3")


class Opaque:
    """An unknown type whose representation raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no name")


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.datetimes()
    | st.datetimes(timezones=st.timezones())
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.sampled_from(
        [
            object(),
            int,
            math.inf,
            math.nan,
            10**400,
            -(10**400),
            "\x00",
            "\ud800",
            "x" * 3000,
            "PT1S",
            "HIGH",
            "AFTER",
            "2026-01-15T10:30:00Z",
            "http://example.com",
            msgspec.Raw(b"nope"),
            msgspec.UNSET,
            Decimal("NaN"),
            UUID(int=0),
            date(2026, 1, 1),
            datetime.max,
            datetime.min.replace(tzinfo=UTC),
            timedelta.max,
            timedelta.min,
            range(3),
            Backoff(),
        ]
    )
)
HASHABLE = st.text(max_size=5) | st.integers() | st.none() | st.binary(max_size=3)
JUNK = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE | st.sampled_from(sorted(Backoff.__struct_fields__)), inner)
        | st.sets(HASHABLE, max_size=3)
        | st.builds(
            Backoff,
            strategy=inner,
            initial_delay=inner,
            max_delay=inner,
            multiplier=inner,
            jitter=inner,
        )
    ),
    max_leaves=4,
)
NAMES = st.sampled_from(sorted(FIELDS)) | HASHABLE


@given(JUNK, st.sampled_from(sorted(FIELDS - {"type"})))
def test_one_arbitrary_field_is_accepted_or_refused(junk: object, field: str) -> None:
    try:
        job = accept(Submission(**{"type": "t", field: junk}), job_id=ID, now=NOW)
    except ValidationError as error:
        assert all(fault.field.startswith(field) for fault in error.faults)  # noqa: PT017
        msgspec.json.encode(error.faults)
    else:
        assert job.id == ID
        _check(job)


def _check(job: Job) -> None:
    """Check that every field has its declared type, as stores expect."""
    known = msgspec.structs.asdict(job)
    assert job == msgspec.convert(known, Job, strict=True)


@pytest.mark.parametrize("field", sorted(FIELDS))
@pytest.mark.parametrize(
    "junk", [Opaque(), [Opaque()], {"a": Opaque()}, 10**5000], ids=["one", "list", "map", "long"]
)
def test_a_value_whose_representation_raises_is_refused(field: str, junk: object) -> None:
    with pytest.raises(ValidationError):
        accept(Submission(**{"type": "t", field: junk}), job_id=ID, now=NOW)


@settings(max_examples=60)
@given(st.dictionaries(NAMES, JUNK, max_size=6))
@example({"type": []})
def test_many_arbitrary_fields_are_accepted_or_refused(fields: dict[object, object]) -> None:
    submission = read(fields)
    assert isinstance(submission.type, str)

    with contextlib.suppress(ValidationError):
        _check(accept(submission, job_id=ID, now=NOW, spawner=Spawner("p", "k")))


@given(JUNK)
def test_anything_but_an_object_is_refused(junk: object) -> None:
    with contextlib.suppress(ValidationError):
        read(junk)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(NAMES, JUNK, max_size=3), min_size=1, max_size=3))
def test_an_arbitrary_batch_is_answered_job_by_job(batch: list[dict[object, object]]) -> None:
    submissions = [read({"type": "t", **fields}) for fields in batch]

    outside_references(submissions)
    answers = accept_batch(submissions, job_ids=[str(n) for n in range(len(batch))], now=NOW)

    assert len(batch) == len(answers)
