"""Limits, pauses, drained workers and autoscaling over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Client, Holdfast, NotFoundError, ValidationError
from tests.http.site import API, running
from tests.http.test_client import listening
from tests.waiting import eventually
from tests.worker.rig import working

if TYPE_CHECKING:
    from tests.http.site import Site


async def test_limits_pauses_and_scale_on_every_store(any_site: Site) -> None:
    site = any_site
    await site.submit("a", {"n": 1})

    made = await site.post(f"{API}/limits/queue%3Adefault", {"rate": 5, "per": "PT1M", "burst": 3})
    listed = await site.get(f"{API}/limits")
    lifted = await site.call("DELETE", f"{API}/limits/queue%3Adefault")
    wrong = await site.post(f"{API}/limits/queue%3Adefault", {})
    paused = await site.post(
        f"{API}/queues/default/pause", {"reason": "why", "until": "2099-01-01T00:00:00Z"}
    )
    late = await site.post(f"{API}/queues/default/pause", {"until": "2000-01-01T00:00:00Z"})
    queues = (await site.get(f"{API}/queues")).json["queues"]
    scale = (await site.get(f"{API}/queues/default/scale?slots=1")).json
    unknown = (await site.get(f"{API}/queues/nothing/scale")).json

    assert (200, True) == (made.status, made.json["overridden"])
    assert (5, 3) == (made.json["rule"]["rate"], made.json["rule"]["burst"])
    assert ["queue:default"] == [each["scope"] for each in listed.json["limits"]]
    assert (None, 400) == (lifted.json["limit"], wrong.status)
    assert ("why", 400) == (paused.json["pause"]["reason"], late.status)
    assert "anyone on this machine" == queues[0]["pause"]["by"]
    assert (1, 1) == (scale["ready"], scale["desired_workers"])
    assert scale["oldest_ready_seconds"] >= 0
    assert (0, 0, 0) == (
        unknown["ready"],
        unknown["oldest_ready_seconds"],
        unknown["desired_workers"],
    )


async def test_worker_is_drained_by_its_operator_and_not_by_a_tenant() -> None:
    app = Holdfast("memory://", version="1.2")
    app.task("t")(_nothing)
    async with working(app, queues=("default", "acme/q")) as worker, running(app) as site:
        operator, tenant = await site.key("operator"), await site.key("operator", "acme")
        path = f"{API}/workers/{worker.id}"
        refused = await site.call("POST", f"{path}/drain", key=tenant)
        missing = await site.call("POST", f"{API}/workers/x/drain", key=operator)
        drained = await site.call("POST", f"{path}/drain", key=operator)
        undrained = await site.call("POST", f"{path}/undrain", key=operator)
        listed = await site.get(f"{API}/workers", key=operator)
        audit = await site.get(f"{API}/audit", key=await site.key("admin"))

    assert (403, 404) == (refused.status, missing.status)
    assert (True, False) == (drained.json["draining"], undrained.json["draining"])
    assert "1.2" == listed.json["workers"][0]["app_version"]
    assert "undrainWorker" in {entry["action"] for entry in audit.json["entries"]}


async def test_client_controls_as_an_app_does() -> None:
    async with listening(Holdfast("memory://")) as served, Client(served.url) as client:
        made = await client.set_limit("task:t", concurrency=3)
        (listed,) = await client.limit_states()
        lifted = await client.lift_limit("task:t")
        await client.pause("q", reason="why", until="2099-01-01T00:00:00Z")
        (queue,) = await client.queues()
        scale = await client.scale("q", slots=5)
        with pytest.raises(NotFoundError, match="no worker with name 'nobody'"):
            await client.drain("nobody")
        with pytest.raises(ValidationError):
            await client.set_limit("nonsense", rate=1)

    assert (3, listed, None) == (made.rule.concurrency, made, lifted)
    assert queue.pause is not None
    assert ("why", 0) == (queue.pause.reason, scale.ready)


async def _nothing() -> None: ...


async def test_drain_outlives_the_service_that_requested_it() -> None:
    app = Holdfast("memory://")
    app.task("t")(_nothing)
    async with working(app) as worker:
        async with running(app) as first:
            await first.call("POST", f"{API}/workers/{worker.id}/drain")
        async with running(app) as second:

            async def drained() -> bool:
                (listed,) = (await second.get(f"{API}/workers")).json["workers"]
                return bool(listed["draining"])

            assert await eventually(drained)
            job_id = await second.submit("t")
            assert "SCHEDULED" == (await second.get(f"{API}/jobs/{job_id}")).json["state"]
            await second.call("POST", f"{API}/workers/{worker.id}/undrain")
            ended = await second.get(f"{API}/jobs/{job_id}/wait?timeout=20")

    assert "COMPLETED" == ended.json["state"]
