"""Results of submissions as JSON."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.api.submissions import BatchBody, SubmissionBody, encodable
from holdfast.errors import DuplicateError, Fault, ValidationError
from holdfast.model import results
from holdfast.model.results import SubmissionStatus, submission_result
from tests.model.making import job

NEW = submission_result(job())
KNOWN = results.SubmissionResult(
    job_id="1", status=SubmissionStatus.DUPLICATE, existing_job_id="1", state=job().state
)
REFUSED = results.SubmissionResult(
    job_id="", status=SubmissionStatus.REJECTED, error=ValidationError([Fault("a", "B", "c")])
)
TAKEN = results.SubmissionResult(
    job_id="2", status=SubmissionStatus.REJECTED, error=DuplicateError("key", "1")
)


@pytest.mark.parametrize("result", [NEW, KNOWN, REFUSED, TAKEN])
def test_result_encodes_like_its_body(result: results.SubmissionResult) -> None:
    body = SubmissionBody.of(result)

    assert msgspec.json.encode(body) == msgspec.json.encode(encodable(result))


@pytest.mark.parametrize("members", [(NEW,), (NEW, KNOWN), (NEW, REFUSED, TAKEN)])
def test_batch_encodes_like_its_body(members: tuple[results.SubmissionResult, ...]) -> None:
    rejected = sum(one.status is SubmissionStatus.REJECTED for one in members)
    batch = results.BatchResult(
        total=len(members), accepted=len(members) - rejected, rejected=rejected, results=members
    )

    body = BatchBody.of(batch)

    assert msgspec.json.encode(body) == msgspec.json.encode(encodable(batch))
