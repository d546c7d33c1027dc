"""A client generated from the OpenAPI document works with the service."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.http.application import ENDPOINTS
from holdfast.http.openapi import document
from tests.http.threaded import served_in_a_thread

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.slow,
    # the package that the generated code uses
    pytest.mark.filterwarnings("ignore::DeprecationWarning:httpx"),
]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return a function that imports a module of the generated client."""
    folder = tmp_path_factory.mktemp("generated")
    described = folder / "openapi.json"
    described.write_bytes(msgspec.json.encode(document(ENDPOINTS)))
    command = ["--path", str(described), "--meta", "none", "--output-path", "jobs_client"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", *command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Warning" not in made.stdout + made.stderr
    sys.path.insert(0, str(folder))
    return lambda name: importlib.import_module(f"jobs_client.{name}")


@pytest.mark.req("A-1", "A-2", "A-5", "A-10")
def test_generated_client_submits_claims_completes_and_receives_errors(
    generated: Callable[[str], Any],
) -> None:
    models = generated("models")
    with served_in_a_thread() as address:
        kind = generated("client").AuthenticatedClient
        with kind(base_url=address, token="unused") as client:
            tags = models.JobSubmissionTagsType0.from_dict({"team": "a"})
            job = models.JobSubmission(type_="greet", payload={"name": "Ada"}, tags=tags)
            made = generated("api.submit.submit_job").sync(
                client=client, body=job, idempotency_key="k"
            )
            again = generated("api.submit.submit_job").sync_detailed(
                client=client, body=job, idempotency_key="k"
            )
            wrong = generated("api.submit.submit_job").sync(
                client=client, body=models.JobSubmission(type_="a b", payload=1, delay=-1)
            )
            claim = models.ClaimJobsBody(worker_id="generated", wait=5)
            claimed = generated("api.leases.claim_jobs").sync(client=client, body=claim)
            (mine,) = claimed.jobs
            generated("api.outcomes.complete_job").sync(
                mine.job_id,
                client=client,
                body=models.CompleteJobBody(lease_token=mine.lease_token, output={"ok": True}),
            )
            done = generated("api.jobs.wait_for_job").sync(made.job_id, client=client)
            listed = generated("api.jobs.list_jobs").sync(
                client=client, states=[models.ListJobsStatesItem.COMPLETED]
            )
            missing = generated("api.jobs.get_job").sync("missing", client=client)

    assert ("ACCEPTED", 200, made.job_id) == (
        made.status,
        again.status_code,
        again.parsed.existing_job_id,
    )
    assert {"type", "delay"} == {detail.field for detail in wrong.error.details}
    assert ("greet", {"name": "Ada"}) == (mine.type_, mine.payload)
    assert ("COMPLETED", {"ok": True}) == (done.state, done.result.output)
    assert {"team": "a"} == done.tags.to_dict()
    assert [made.job_id] == [one.job_id for one in listed.jobs]
    assert "NOT_FOUND" == missing.error.code
