"""Names that holdfast uses itself."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.errors import ValidationError
from holdfast.model.acceptance import accept
from holdfast.model.reserved import is_internal
from holdfast.model.submission import Defaults, Submission

NOW = datetime(2026, 1, 15, tzinfo=UTC)


@pytest.mark.parametrize("name", ["holdfast.webhook", "holdfast."])
def test_names_with_the_prefix_are_internal(name: str) -> None:
    assert is_internal(name)


@pytest.mark.parametrize(
    "name", ["holdfast", "holdfastx", "my.holdfast.x", "team/holdfast.x", "Holdfast.x"]
)
def test_other_names_are_not(name: str) -> None:
    assert not is_internal(name)


@pytest.mark.req("R-1")
@pytest.mark.parametrize(
    ("submission", "field"),
    [
        (Submission(type="holdfast.x"), "type"),
        (Submission(type="x", queue="holdfast.x"), "queue"),
        (Submission(type="x", queue="taken"), "queue"),
    ],
)
def test_reserved_name_is_refused_from_callers(submission: Submission, field: str) -> None:
    defaults = Defaults(reserved_queues=frozenset({"taken"}))

    with pytest.raises(ValidationError) as refused:
        accept(submission, job_id="1", now=NOW, defaults=defaults)

    assert [(field, "RESERVED")] == [(one.field, one.code) for one in refused.value.faults]


def test_holdfast_itself_may_use_its_own_names() -> None:
    submission = Submission(type="holdfast.x", queue="holdfast.y")

    job = accept(submission, job_id="1", now=NOW, defaults=Defaults(internal=True))

    assert ("holdfast.x", "holdfast.y") == (job.type, job.queue)
