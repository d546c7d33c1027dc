"""One set of names: the library, HTTP and the command line describe a job alike."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli import cli
from tests.http.site import API, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.http.site import Site

HISTORY = {"from_state", "to_state", "timestamp", "reason"}
FAILURE = {"attempt", "timestamp", "duration_ms", "category", "code", "message", "worker_id"}


async def failed_job(site: Site) -> str:
    """Submit a job that reports progress and a line, then fails for good."""
    job_id = await site.submit("a", {"n": 1}, priority="HIGH")
    (claimed,) = await site.claim()
    token, path = {"lease_token": claimed["lease_token"]}, f"{API}/jobs/{job_id}"
    await site.post(f"{path}/progress", {**token, "percent": 50, "message": "half"})
    await site.post(f"{path}/log", {**token, "message": "line", "fields": {"k": "v"}})
    await site.post(f"{path}/fail", {**token, "message": "no", "category": "PERMANENT"})
    return job_id


def encoded(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.req("A-5", "A-14")
async def test_values_of_the_library_encode_to_the_bodies_of_the_service(site: Site) -> None:
    job_id = await failed_job(site)
    app, path = site.app, f"{API}/jobs/{job_id}"
    status = await app.get(job_id, include_history=True)
    logs = await app.logs(job_id)
    found = [event async for event in app.events(after="0", follow=False)]

    bodies = [
        (await site.get(f"{path}?include_history=true")).json,
        (await site.get(f"{path}/failure")).json,
        (await site.get(f"{API}/jobs")).json,
        (await site.get(f"{API}/failures")).json,
        (await site.get(f"{path}/logs")).json["logs"],
    ]

    values = [status, await app.failure(job_id), await app.search(), await app.failures(), logs]
    assert [encoded(value) for value in values] == bodies
    assert ("HIGH", 1, None) == (status.priority, status.priority_level, status.worker_id)
    assert HISTORY <= bodies[0]["history"][0].keys()
    assert FAILURE <= bodies[0]["failure"].keys()
    assert {"percent", "message", "updated_at"} <= bodies[0]["progress"].keys()
    assert {"timestamp", "level", "message", "attempt", "fields"} == bodies[4][0].keys()
    assert all(event.timestamp for event in found)


@pytest.mark.req("A-5")
def test_command_line_prints_the_bodies_of_the_service(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def served() -> tuple[str, list[Any]]:
        async with running(Holdfast(url)) as site:
            job_id = await failed_job(site)
            return job_id, [
                (await site.get(f"{API}/jobs/{job_id}?include_history=true")).json,
                (await site.get(f"{API}/jobs")).json,
                (await site.get(f"{API}/failures")).json,
            ]

    job_id, bodies = asyncio.run(served())

    commands = (["job", job_id, "--history"], ["jobs"], ["failures"])
    printed = [CliRunner().invoke(cli, [*one, "--url", url, "--json"]).stdout for one in commands]

    assert bodies == [json.loads(text) for text in printed]
