"""Generated requests, valid and invalid: responses match the OpenAPI document."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    positive_data_acceptance,
)

from holdfast.http.application import ENDPOINTS
from holdfast.http.openapi import document
from tests.http.threaded import served_in_a_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis.checks import CheckFunction

pytestmark = pytest.mark.slow
EXAMPLES = int(os.environ.get("HOLDFAST_SCHEMA_EXAMPLES", "5"))

described = msgspec.json.decode(msgspec.json.encode(document(ENDPOINTS)))
whole = schemathesis.openapi.from_dict(described)
schema = whole.exclude(operation_id="streamEvents")
stream = whole.include(operation_id="streamEvents")
"""The event stream does not end: only its beginning is checked."""

BEYOND_SCHEMAS = {
    "BEYOND_LIFETIME",
    "UNSUPPORTED",
    "CONFLICT",
    "CYCLE",
    "DUPLICATE",
    "INVALID_TEXT",
    "NOT_FOUND",
    "NOT_UNIQUE",
    "REFUSED",
    "RESERVED",
}
LOOSELY_DESCRIBED = {
    "cursor",
    "expression",
    "idempotency_window",
    "interval",
    "lease",
    "lifetime",
    "max_delay",
    "output",
    "payload",
    "scope",
    "step",
    "time_range",
    "ttl",
    "timeout",
    "tz",
    "until",
    "url",
}
"""Rules that no schema can state: jobs that must exist, moments that have passed, limits on
durations written as text,
cursors of earlier pages, addresses that may be called, NUL deep inside a payload."""

once = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A service with some jobs in it."""
    with served_in_a_thread() as address:
        yield address


@pytest.mark.req("A-3", "A-10")
@schema.parametrize()
@once
def test_responses_match_the_document(case: schemathesis.Case, address: str) -> None:
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body = {**case.body, "wait": 0}
    excluded: list[CheckFunction] = [positive_data_acceptance]
    if isinstance(case.body, dict) and case.body.get("atomic") is False:
        excluded.append(negative_data_rejection)  # an invalid job has its own result
    response = case.call_and_validate(base_url=address, excluded_checks=excluded)
    if response.status_code == 400 and case.meta.generation.mode is GenerationMode.POSITIVE:
        faults = response.json()["error"]["details"]
        named = {
            f["code"] for f in faults if f["field"].rpartition(".")[2] not in LOOSELY_DESCRIBED
        }
        assert named <= BEYOND_SCHEMAS, response.text


@pytest.mark.req("A-10")
@stream.parametrize()
@once
def test_event_stream_begins_as_documented(case: schemathesis.Case, address: str) -> None:
    request = case.as_transport_kwargs(base_url=address)
    with requests.request(**request, stream=True, timeout=10) as response:
        kind = response.headers["content-type"].partition(";")[0]
        if response.status_code == 200:
            follows = (case.query or {}).get("follow") != "false"
            first = next(response.iter_lines(), b"") if follows else b": connected"
            assert ("text/event-stream", b": connected") == (kind, first)
        else:
            assert response.status_code in (400, 401, 403, 404, 405)
            assert ("application/json", True) == (kind, bool(response.json()["error"]["code"]))
