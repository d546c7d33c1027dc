"""What a submission may say about deduplication."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import ValidationError
from holdfast.model.acceptance import accept
from holdfast.model.deduplication import Deduplication
from holdfast.model.job import Job
from holdfast.model.submission import Defaults, Submission

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def accepted(option: object, *, supported: bool = True, **fields: object) -> Job:
    submission = Submission(type="t", deduplication=option, **fields)  # type: ignore[arg-type]
    return accept(
        submission, job_id="1", now=NOW, defaults=Defaults(deduplicates=supported), parents={}
    )


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"id": "a"}, Deduplication(id="a")),
        ({"id": "a", "ttl": None}, Deduplication(id="a")),
        (
            {"id": "a", "ttl": 5, "extend": True, "replace": False},
            Deduplication(id="a", ttl=timedelta(seconds=5), extend=True),
        ),
        (
            Deduplication(id="a:b", ttl=timedelta(seconds=1), replace=True),
            Deduplication(id="a:b", ttl=timedelta(seconds=1), replace=True),
        ),
        (
            {"id": "a", "reschedule": True},
            Deduplication(id="a", reschedule=True),
        ),
        (
            {"id": "a", "keep_last_if_active": True},
            Deduplication(id="a", keep_last_if_active=True),
        ),
    ],
)
def test_deduplication_is_read(option: object, expected: Deduplication) -> None:
    assert expected == accepted(option).deduplication


@pytest.mark.parametrize(
    ("option", "field", "code"),
    [
        ("a", "deduplication", "INVALID"),
        ({}, "deduplication.id", "REQUIRED"),
        ({"id": ""}, "deduplication.id", "INVALID"),
        ({"id": 7}, "deduplication.id", "INVALID"),
        ({"id": "x" * 257}, "deduplication.id", "INVALID"),
        ({"id": "a\x00"}, "deduplication.id", "INVALID"),
        ({"id": "a", "ttl": "soon"}, "deduplication.ttl", "INVALID_DURATION"),
        ({"id": "a", "ttl": 0}, "deduplication.ttl", "OUT_OF_RANGE"),
        ({"id": "a", "extend": True}, "deduplication.extend", "CONFLICT"),
        ({"id": "a", "replace": 1}, "deduplication.replace", "INVALID"),
        ({"id": "a", "debounce": 1}, "deduplication.debounce", "UNKNOWN_FIELD"),
    ],
)
def test_invalid_deduplication_is_refused_by_field(option: object, field: str, code: str) -> None:
    with pytest.raises(ValidationError) as caught:
        accepted(option)

    assert [(field, code)] == [(fault.field, fault.code) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("option", "fields", "refused"),
    [
        ({"id": "a"}, {"idempotency_key": "k"}, "deduplication"),
        (
            {"id": "a", "keep_last_if_active": True},
            {"hold": True},
            "deduplication.keep_last_if_active",
        ),
    ],
)
def test_deduplication_is_refused_with_options_that_contradict_it(
    option: object, fields: dict[str, object], refused: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        accepted(option, **fields)

    assert [refused] == [fault.field for fault in caught.value.faults]


def test_store_without_deduplication_refuses_it() -> None:
    with pytest.raises(ValidationError, match="idempotency_key") as caught:
        accepted({"id": "a"}, supported=False)

    assert ["UNSUPPORTED"] == [fault.code for fault in caught.value.faults]


def test_encryption_refuses_to_keep_the_last_duplicate() -> None:
    terms = Defaults(deduplicates=True, encrypts=True)
    option = Deduplication(id="a", keep_last_if_active=True)
    submission = Submission(type="t", deduplication=option)

    with pytest.raises(ValidationError, match="encryption") as caught:
        accept(submission, job_id="1", now=NOW, defaults=terms, parents={})

    assert ["deduplication.keep_last_if_active"] == [each.field for each in caught.value.faults]
