"""Commands without the code of a task apply what its worker declared, on every store."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from holdfast import Holdfast, Worker
from holdfast.cli import cli
from tests.cli.conftest import Place
from tests.conformance.conftest import SERVED
from tests.conformance.stores import NAMES, PLACES

SHARED = [name for name in NAMES if name != "memory"]
"""A command is a process of its own, so the memory store takes no part."""


@pytest.fixture(params=[pytest.param(name, marks=SERVED.get(name, ())) for name in SHARED])
def url(place: Place, request: pytest.FixtureRequest) -> Iterator[str]:
    """A store that commands open by its URL."""
    with PLACES[request.param](request) as kept:
        yield kept.url


@pytest.fixture
async def declared(url: str) -> str:
    """The same store after a worker ran on it."""
    app = Holdfast(url, queues={"money": "lease"})

    @app.task("pay", queue="money", max_attempts=1, timeout=3)
    async def pay() -> None: ...

    await Worker(app, queues=["other"], maintenance=False, name="w1").run(burst=True)
    return url


def run(*args: str) -> str:
    result = CliRunner().invoke(cli, list(args), prog_name="holdfast")
    assert 0 == result.exit_code, result.output
    return result.stdout


@pytest.mark.req("M-6", "M-7")
def test_submit_applies_what_the_task_declares(declared: str) -> None:
    job_id = json.loads(run("submit", "pay", "--url", declared, "--json"))["job_id"]

    page = json.loads(run("job", job_id, "--settings", "--url", declared, "--json"))
    assert ("money", 1) == (page["queue"], page["max_attempts"])
    assert {"value": 3.0, "origin": "TASK"} == page["settings"]["values"]["timeout"]
    explained = json.loads(run("explain", job_id, "--url", declared, "--json"))["settings"]
    assert page["settings"] == explained
    lines = run("job", job_id, "--settings", "--url", declared).splitlines()
    shown = {line.split("  ")[0]: line.split() for line in lines if line}
    assert "the task, declared by worker w1" in " ".join(shown["max attempts"])
    assert ["lease", "5.0", "s", "profile", "lease"] == shown["lease"]
    assert [
        "its task declares queue, max attempts, timeout (published by worker w1)",
        "profile lease gives priority, backoff, lifetime, lease, retry timeouts, retry crashes",
    ] == run("explain", job_id, "--url", declared).splitlines()[1:]


def test_submit_without_a_declaration_uses_the_usual_defaults(url: str) -> None:
    job_id = json.loads(run("submit", "pay", "--url", url, "--json"))["job_id"]

    job = json.loads(run("job", job_id, "--url", url, "--json"))
    assert ("default", 3) == (job["queue"], job["max_attempts"])


def test_submit_applies_the_profiles_and_limits_of_the_settings_file(
    place: Place, url: str
) -> None:
    (place.path / "holdfast.toml").write_text(
        '[profiles]\ndefault = "document"\n[limits]\npayload_bytes = 10\n', "utf-8"
    )

    job_id = json.loads(run("submit", "pay", "--url", url, "--json"))["job_id"]
    refused = CliRunner().invoke(cli, ["submit", "pay", '"longer than ten"', "--url", url])

    job = json.loads(run("job", job_id, "--url", url, "--json"))
    assert ("document", 4) == (job["profile"], job["max_attempts"])
    assert 2 == refused.exit_code
    assert "payload: Job payload size 17 bytes exceeds limit of 10 bytes" in refused.stderr


def test_worker_publishes_the_profiles_that_flags_give(place: Place, url: str) -> None:
    done = place.process(
        *("worker", "jobs_here", "--burst", "--no-supervisor", "--profile", "mail=lease"),
        *("--profile", "default=document", "--timeout-limit", "PT1M", "--url", url),
    )

    job_id = json.loads(run("submit", "x", "--queue", "mail", "--url", url, "--json"))["job_id"]

    assert 0 == done.returncode, done.stderr
    job = json.loads(run("job", job_id, "--url", url, "--json"))
    assert ("lease", 4) == (job["profile"], job["max_attempts"])


def test_flag_cannot_change_what_the_app_gives_itself(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(place.path)
    (place.path / "own_limits.py").write_text(
        "from holdfast import Holdfast, Limits\napp = Holdfast(limits=Limits(batch=2))\n", "utf-8"
    )

    result = place.run("worker", "own_limits", "--payload-limit", "2000")

    assert 2 == result.exit_code
    assert "own_limits gives its own limits, which --payload-limit cannot change" in result.stderr


@pytest.mark.parametrize("command", ["worker", "serve"])
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--profile", "mail"], "profiles: must give queue 'mail' one of"),
        (["--payload-limit", "big"], "limits.payload_bytes: must be a whole number from 1"),
        (["--keep-failed", "never"], "retention.failed: must be a duration"),
        (["--webhooks-attempts", "0"], "webhooks.max_attempts: must be a whole number from 1"),
    ],
)
def test_errors_name_the_wrong_setting(
    place: Place, command: str, args: list[str], message: str
) -> None:
    result = place.run(command, "jobs_here", *args)

    assert 2 == result.exit_code
    assert message in result.stderr
