"""Requests made from the OpenAPI document, right and wrong ones: the answers are as it says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from holdfast.http.application import ENDPOINTS
from holdfast.http.openapi import document
from tests.http.threaded import served_in_a_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
EXAMPLES = int(os.environ.get("HOLDFAST_SCHEMA_EXAMPLES", "5"))

described = msgspec.json.decode(msgspec.json.encode(document(ENDPOINTS)))
schema = schemathesis.openapi.from_dict(described).exclude(operation_id="streamEvents")
"""All but the event stream, which does not end."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A service with some jobs in it."""
    with served_in_a_thread() as address:
        yield address


@pytest.mark.req("A-3", "A-10")
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_service_answers_as_its_document_says(case: schemathesis.Case, address: str) -> None:
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body = {**case.body, "wait": 0}
    # What a schema cannot say is refused too: cursors, jobs that must exist, one span in another.
    case.call_and_validate(base_url=address, excluded_checks=[positive_data_acceptance])
