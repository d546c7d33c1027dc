"""Names that only BullMQ accepts, through the HTTP service, its client and the command line."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli import cli
from tests.http.site import API, Site, running

if TYPE_CHECKING:
    from tests.servers import Valkey
    from tests.wire.peer import Peer

QUEUES = ["{mail}", "my mails", "größe", "a?b#c%d"]
NAME = "mail:send now/日本"


def command(url: str, *args: str) -> Any:
    """Run a command that must succeed and return the document it prints."""
    result = CliRunner().invoke(cli, [*args, "--json", "--url", url], prog_name="holdfast")
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


async def work(site: Site, queue: str, result: object) -> dict[str, Any]:
    """Claim one job of a queue as a worker over HTTP does, and complete it."""
    body = {"worker_id": "w", "queues": [queue], "wait": 10}
    claimed = (await site.post(f"{API}/workers/claim", body)).json
    (job,) = claimed["jobs"]
    path = f"{API}/jobs/{quote(job['job_id'], safe='')}/complete"
    reply = await site.post(path, {"lease_token": job["lease_token"], "output": result})
    assert 200 == reply.status, reply.body
    return dict(job)


@pytest.mark.req("B-1", "B-9")
@pytest.mark.parametrize("queue", QUEUES)
async def test_node_jobs_of_any_name_are_worked_over_http(
    valkey_server: Valkey, prefix: str, peer: Peer, queue: str
) -> None:
    url = f"{valkey_server.url}?prefix={prefix}"
    job_id = await peer.ask("add", queue=queue, job=NAME, data={"n": 1})
    async with running(Holdfast(url)) as site:
        job = await work(site, queue, {"ok": 1})
        found = await site.get(f"{API}/jobs?queues={quote(queue)}&types={quote(NAME)}")
        status = await site.get(f"{API}/jobs/{quote(job['job_id'], safe='')}")

    assert (NAME, queue, {"n": 1}) == (job["type"], job["queue"], job["payload"])
    assert [job["job_id"]] == [each["job_id"] for each in found.json["jobs"]]
    assert "COMPLETED" == status.json["state"]
    shown = await peer.ask("job", queue=queue, id=job_id)
    assert ("completed", {"ok": 1}) == (shown["state"], shown["returnvalue"])


@pytest.mark.req("B-1", "B-9")
@pytest.mark.parametrize("queue", QUEUES)
async def test_jobs_of_any_name_are_submitted_over_http(
    valkey_server: Valkey, prefix: str, peer: Peer, queue: str
) -> None:
    url = f"{valkey_server.url}?prefix={prefix}"
    async with running(Holdfast(url, queues={queue: "bullmq"})) as site:
        body = {"type": NAME, "payload": {"n": 1}, "queue": queue, "remove_on_fail": 7}
        reply = await site.post(f"{API}/jobs", body)
        assert 201 == reply.status, reply.body
        refused = await site.post(f"{API}/jobs", {**body, "remove_on_fail": -1})
        assert {"remove_on_fail": "OUT_OF_RANGE"} == refused.fields
        await peer.ask("work", queue=queue)
        await peer.until("completed")

    shown = await peer.ask("job", queue=queue, id=reply.json["job_id"])
    assert (NAME, 7) == (shown["name"], shown["opts"]["removeOnFail"])


@pytest.mark.req("B-1", "B-9")
@pytest.mark.parametrize("queue", QUEUES)
async def test_queues_of_any_name_are_paused_over_http_and_by_command(
    valkey_server: Valkey, prefix: str, peer: Peer, queue: str
) -> None:
    url, path = f"{valkey_server.url}?prefix={prefix}", f"{API}/queues/{quote(queue, safe='')}"
    await peer.ask("add", queue=queue, job=NAME, data={})

    async def is_paused() -> bool:
        return bool(await peer.ask("call", queue=queue, method="isPaused"))

    async with running(Holdfast(url)) as site:
        assert 200 == (await site.post(f"{path}/pause")).status
        assert await is_paused()
        assert 200 == (await site.post(f"{path}/resume")).status
        assert not await is_paused()
        refused = await site.post(f"{API}/queues/a%3Ab/pause")
        assert {"queue": "INVALID"} == refused.fields
    await asyncio.to_thread(command, url, "queues", "pause", queue)
    assert await is_paused()
    await asyncio.to_thread(command, url, "queues", "resume", queue)
    assert not await is_paused()
    jobs = await asyncio.to_thread(command, url, "jobs", "--queue", queue, "--type", NAME)
    assert [queue] == [job["queue"] for job in jobs["jobs"]]


@pytest.mark.req("B-1", "B-9")
@pytest.mark.parametrize("queue", QUEUES)
async def test_jobs_of_any_name_are_submitted_by_command(
    valkey_server: Valkey, prefix: str, peer: Peer, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{valkey_server.url}?prefix={prefix}"
    monkeypatch.setenv("HOLDFAST_PROFILES", f"{queue}=bullmq")
    words = ("submit", NAME, '{"n": 1}', "--queue", queue, "--remove-on-complete", '{"age": 60}')
    made = await asyncio.to_thread(command, url, *words)
    await peer.ask("work", queue=queue)
    await peer.until("completed")

    shown = await peer.ask("job", queue=queue, id=made["job_id"])
    assert (NAME, {"age": 60}) == (shown["name"], shown["opts"]["removeOnComplete"])


@pytest.mark.req("B-1", "B-9")
@pytest.mark.parametrize("job_id", ["x/y", "a b", "ü?#%", "a%2Fb/c"])
async def test_jobs_of_any_id_are_read_and_cancelled_over_http(
    valkey_server: Valkey, prefix: str, peer6: Peer, job_id: str
) -> None:
    await peer6.ask("add", queue="q", job="a", data={}, opts={"jobId": job_id})
    path = f"{API}/jobs/{quote(f'q:{job_id}', safe='')}"
    async with running(Holdfast(f"{valkey_server.url}?prefix={prefix}")) as site:
        shown = await site.get(path)
        logs = await site.get(f"{path}/logs")
        cancelled = await site.post(f"{path}/cancel")

    assert (200, f"q:{job_id}") == (shown.status, shown.json["job_id"])
    assert (200, 200) == (logs.status, cancelled.status)
    assert "failed" == await peer6.ask("state", queue="q", id=job_id)
