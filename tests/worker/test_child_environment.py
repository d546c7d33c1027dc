"""Which variables of a worker its child processes get."""

from __future__ import annotations

import os

import pytest

from holdfast import Holdfast
from holdfast.worker.runners.environment import child_environment
from tests.worker.rig import working

SECRETS = {
    "HOLDFAST_API_KEY": "hf_1_2",
    "HOLDFAST_ENCRYPTION_KEYS": "a:b",
    "HOLDFAST_ENCRYPTION_KEYS_FILE": "/keys",
}
app = Holdfast("memory://")


@app.task("environment.read", runner="process")
def read(names: list[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


@pytest.mark.req("M-12")
async def test_handler_in_a_process_finds_none_of_the_secrets_of_holdfast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://me:hunter2@db/jobs?a=b")
    monkeypatch.setenv("MY_DATABASE", "postgresql://me:hunter2@db/mine")
    async with working(app):
        job = await app.submit(
            "environment.read", {"names": [*SECRETS, "HOLDFAST_URL", "MY_DATABASE"]}
        )
        found = (await app.wait(job.job_id, timeout=30)).output

    assert {
        "HOLDFAST_URL": "postgresql://me@db/jobs?a=b",
        "MY_DATABASE": "postgresql://me:hunter2@db/mine",
    } == found


async def test_allow_list_leaves_out_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WORKER_ENVIRONMENT", "AWS_*, MY_FLAG")
    for name in ("AWS_REGION", "MY_FLAG", "MY_DATABASE"):
        monkeypatch.setenv(name, "x")
    async with working(app):
        job = await app.submit(
            "environment.read", {"names": ["AWS_REGION", "MY_FLAG", "MY_DATABASE", "PATH"]}
        )
        found = (await app.wait(job.job_id, timeout=30)).output

    assert {"AWS_REGION", "MY_FLAG", "PATH"} == set(found)


def test_unreadable_url_is_not_passed_on() -> None:
    assert {"HOLDFAST_URL": ""} == child_environment({"HOLDFAST_URL": "redis://[:hunter2@db"})
