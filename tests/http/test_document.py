"""The OpenAPI document: valid, complete, and true to what the service does."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from openapi_spec_validator import validate

from holdfast.api.errors import MEANING, STATUS_OF
from holdfast.http.application import ENDPOINTS
from holdfast.model.job import State
from holdfast.model.workers import WorkerInfo
from holdfast.operations.workers import announce
from tests.architecture import tree
from tests.http.site import API

if TYPE_CHECKING:
    from tests.http.site import Site


@pytest.fixture
async def document(site: Site) -> dict[str, Any]:
    reply = await site.get("/openapi.json")
    assert "application/json" == reply.headers["content-type"]
    return reply.json


async def test_document_is_valid_and_names_every_route(document: dict[str, Any]) -> None:
    validate(document)

    described = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert {(e.method, e.path) for e in ENDPOINTS} == described
    names = [o["operationId"] for methods in document["paths"].values() for o in methods.values()]
    assert len(set(names)) == len(names)


async def test_every_operation_describes_its_errors_and_shows_an_example(
    document: dict[str, Any],
) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            responses = operation["responses"]
            assert operation["summary"], where
            assert any(status.startswith("2") for status in responses), where
            assert "500" in responses, where
            for status, response in responses.items():
                if status[0] in "45" and path != "/health/ready":
                    codes = [
                        c for c in STATUS_OF if f"{c}: {MEANING[c]}" in response["description"]
                    ]
                    assert codes, where
                    assert {int(status)} == {STATUS_OF[code] for code in codes}, where
            if path.startswith(API):
                assert {"401", "403", "429", "503"} <= set(responses), where
            fields = _fields(operation)
            if fields:
                content = operation["requestBody"]["content"]["application/json"]
                assert "example" in content or set(fields) == {"lease_token"}, where


def _fields(operation: dict[str, Any]) -> dict[str, Any]:
    if "requestBody" not in operation:
        return {}
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return schema.get("properties", {"$ref": 1} if "$ref" in schema else {})


async def test_service_accepts_the_examples(site: Site, document: dict[str, Any]) -> None:
    await site.submit()
    (claimed,) = await site.claim()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            example = content.get("application/json", {}).get("example")
            if example is None:
                continue
            if "lease_token" in example:
                example = {**example, "lease_token": claimed["lease_token"]}
            where = path.replace("{job_id}", claimed["job_id"]).replace("{queue}", "default")
            where = where.replace("{scope}", "queue:default")
            reply = await site.call(method.upper(), where, example)
            unknown = (404,) if "{" in where else ()
            assert reply.status in (200, 201, 202, 409, *unknown), (path, reply.body)


async def test_docs_page_loads_nothing_from_other_hosts(site: Site) -> None:
    reply = await site.get("/docs")
    text = reply.body.decode()

    assert "text/html; charset=utf-8" == reply.headers["content-type"]
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert [] == re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", text)
    assert "<script" not in text
    for endpoint in ENDPOINTS:
        assert f"{endpoint.method} {endpoint.path}" in text
    for name in re.findall(r"href='#(\w+)'", text):
        assert f"id='{name}'" in text


async def test_prometheus_can_parse_the_metrics(site: Site) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    await site.submit("a", queue="q")
    await site.get(f"{API}/jobs/missing")
    await site.claim(queues=["q"])
    drained = WorkerInfo(
        id="w1",
        host="h",
        pid=1,
        queues=("other",),
        types=("nobody",),
        slots=1,
        running=0,
        started_at=site.app.clock.now(),
        draining=True,
    )
    await announce(site.app.store, drained)
    for _ in range(2):
        await site.submit("nobody", queue="other")

    reply = await site.get("/metrics")

    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {family.name: family for family in text_string_to_metric_families(reply.body.decode())}
    jobs = {(s.labels["queue"], s.labels["state"]): s.value for s in found["holdfast_jobs"].samples}
    assert 1 == jobs["q", "RUNNING"]
    assert {("q", state.value) for state in State} <= jobs.keys()
    oldest = {s.labels["queue"]: s.value for s in found["holdfast_oldest_ready_seconds"].samples}
    assert (0, True) == (oldest["q"], oldest["other"] > 0)
    without = {s.labels["type"]: s.value for s in found["holdfast_jobs_without_worker"].samples}
    assert {"nobody": 2} == without
    requests = {
        (s.labels["route"], s.labels["status"]): s.value
        for s in found["holdfast_http_requests"].samples
    }
    assert 1 == requests["getJob", "404"]
    assert 3 == requests["submitJob", "201"]
    assert "holdfast_http_request_seconds" in found
    assert "holdfast_queue_latency_seconds" in found


async def test_generated_clients_see_the_same_component_names(document: dict[str, Any]) -> None:
    names = """
        APIError Attempt AttemptInfo AttemptResult AuditEntry AuditPage BackoffConfig
        BatchCancellationResult BatchDeletionResult BatchResult BatchRetryResult BatchSubmission
        BulkAction BulkOperation BulkPreview BulkProblem BulkState OperationList
        CancellationResult CancellationStatus
        EdgeKind GraphEdge GraphNode JobGraph
        LimitInfo LimitLift LimitList LimitRule QueueActivity QueuePause QueueScale RunningJob
        MissedRuns ScheduleInfo ScheduleList ScheduleRemoval ScheduleRun ScheduleSource
        Cause ClaimResult ClaimedJob Counts DeletionResult DeletionStatus Delivery DeliveryPage
        DependencyOutput DependencyOutputs OutputEncoding
        DocumentMetadata Duration ErrorDetail ErrorResponse ErrorType Event EventKind Explanation
        FailureCategory FailureDetails FailureGroup FailureGroups FailureInfo FailureSearchResult
        Health JobCounts JobEvent JobPayload JobResult
        JobSearchResult JobSetting JobSettings JobStatus JobSubmission LatencyStats LeaseState
        LeaseStates LogLine LogLines Origin ProgressInfo QueueAgeing QueueInfo QueueList QueueState
        QueueStats
        Series SeriesLine
        ReleaseResult ReleaseStatus ResultStatus RetryResult RetryStatus Settlement Spawned State
        StateTransition SubmissionResult SubmissionStatus UpdateResult UpdateStatus WebhookInfo
        WebhookList WebhookRemoval
        WorkerInfo WorkerList
    """

    schemas = document["components"]["schemas"]

    assert set(names.split()) == set(schemas)
    assert {name: schema["title"] for name, schema in schemas.items() if "title" in schema} == {
        name: name for name, schema in schemas.items() if "title" in schema
    }
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= set(schemas)


async def test_document_explains_every_state(document: dict[str, Any]) -> None:
    description = document["components"]["schemas"]["State"]["description"]

    assert "SCHEDULED: ready to run." in description
    assert "DELAYED: waits for its time." in description
    assert [] == [state for state in State if f"{state}: " not in description]


async def test_tags_are_the_groups_of_routes(document: dict[str, Any]) -> None:
    tags = {o["tags"][0] for methods in document["paths"].values() for o in methods.values()}

    groups = (
        "submit jobs manage batches system oversight events leases outcomes webhooks schedules"
        " operations control health"
    )
    assert set(groups.split()) == tags


async def test_schemas_have_the_fields_of_the_specification(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    expected = {
        "JobSubmission": "type payload priority delay scheduled_at timeout max_attempts backoff"
        " idempotency_key correlation_id tags depends_on dependency_type callback_url",
        "BackoffConfig": "strategy initial_delay max_delay multiplier",
        "SubmissionResult": "job_id status state created_at scheduled_for existing_job_id"
        " existing_job_deleted",
        "BatchSubmission": "jobs atomic",
        "BatchResult": "total accepted rejected results",
        "JobStatus": "job_id type state attempt created_at updated_at scheduled_for started_at"
        " completed_at progress result history priority tags correlation_id",
        "ProgressInfo": "percent message updated_at",
        "JobResult": "status output error duration_ms attempt",
        "StateTransition": "from_state to_state timestamp reason",
        "JobSearchResult": "jobs total_count next_cursor has_more",
        "QueueStats": "pending scheduled running delayed completed failed dead_letter"
        " submission_rate completion_rate failure_rate queue_latency execution_time by_type"
        " by_priority by_state",
        "LatencyStats": "p50 p90 p99 max",
        "Counts": "pending running completed failed",
        "CancellationResult": "job_id status previous_state message",
        "BatchCancellationResult": "requested cancelled skipped failed errors",
        "FailureDetails": "job_id type final_state total_attempts failure attempts",
        "FailureInfo": "attempt timestamp duration_ms category code message stack_trace context"
        " worker_id host",
        "AttemptInfo": "attempt started_at finished_at result failure",
        "FailureSearchResult": "failures total_count next_cursor by_category by_code by_type",
        "RetryResult": "job_id status new_state scheduled_for",
        "APIError": "code message details request_id",
        "ErrorDetail": "field code message",
    }
    for name, fields in expected.items():
        assert set(fields.split()) <= set(schemas[name]["properties"]), name
    assert json.dumps(document)


def test_documentation_lists_every_error() -> None:
    page = (tree.ROOT / "docs" / "http.md").read_text("utf-8")

    for code, status in STATUS_OF.items():
        assert f"| {code} | {status} | {MEANING[code]} |" in page
