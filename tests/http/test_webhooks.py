"""Webhooks over HTTP, one tenant apart from another."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from standardwebhooks import Webhook as Verifier

from holdfast import Holdfast
from holdfast.webhooks import WebhookSettings
from tests.http.site import API, running
from tests.webhooks.receiver import listening
from tests.worker.rig import working

ALLOW = WebhookSettings(allow=("http", "ports", "127.0.0.0/8"), timeout=timedelta(seconds=2))


@pytest.mark.req("A-19", "A-20")
async def test_tenants_hear_of_their_own_jobs_only() -> None:
    app = Holdfast("memory://", webhooks=ALLOW)
    app.task("t")(_done)
    served = ("acme/default", "other/default")
    async with listening() as receiver, working(app, queues=served), running(app) as site:
        acme, other = await site.key("admin", "acme"), await site.key("admin", "other")
        made = await site.call(
            "POST",
            f"{API}/webhooks",
            {"url": receiver.url, "include_result": True},
            key=acme,
        )
        assert 201 == made.status
        await site.call("POST", f"{API}/jobs", {"type": "t", "payload": {}}, key=other)
        job = await site.call("POST", f"{API}/jobs", {"type": "t", "payload": {}}, key=acme)
        (call,) = await receiver.heard()
        listed = await site.get(f"{API}/webhooks", key=acme)
        theirs = await site.get(f"{API}/webhooks", key=other)
        sent = await site.get(f"{API}/deliveries", key=acme)
        unseen = await site.get(f"{API}/deliveries", key=other)
        path = f"{API}/webhooks/{made.json['id']}"
        assert 404 == (await site.get(path, key=other)).status
        assert 404 == (await site.call("DELETE", path, key=other)).status
        assert 200 == (await site.call("DELETE", path, key=acme)).status

    told = Verifier(made.json["secrets"][0]).verify(call.body, call.headers)
    assert (job.json["job_id"], "default", "ok") == tuple(
        told["data"][name] for name in ("job_id", "queue", "result")
    )
    assert [[]] == [one["secrets"] for one in listed.json["webhooks"]]
    assert [] == theirs.json["webhooks"]
    assert [job.json["job_id"]] == [one["job_id"] for one in sent.json["deliveries"]]
    assert [] == unseen.json["deliveries"]
    assert 1 == len(receiver.calls)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": "https://10.0.0.1/"}, "url"),
        ({"url": "https://example.org/", "states": ["RUNNING"]}, "states"),
        ({"url": "https://example.org/", "tags": {"a": 1}}, "tags"),
        ({"url": "https://example.org/", "secret": "mine"}, "secret"),
    ],
)
async def test_wrong_wishes_are_refused_by_field(body: dict[str, object], field: str) -> None:
    async with running() as site:
        reply = await site.call("POST", f"{API}/webhooks", body)

    assert 400 == reply.status
    assert {field} == set(reply.fields)


async def test_secret_is_rotated_and_messages_are_resent() -> None:
    app = Holdfast("memory://", webhooks=ALLOW)
    app.task("t")(_done)
    async with listening() as receiver, working(app), running(app) as site:
        made = await site.call("POST", f"{API}/webhooks", {"url": receiver.url})
        rotated = await site.call("POST", f"{API}/webhooks/{made.json['id']}/rotate", {})
        await site.call("POST", f"{API}/jobs", {"type": "t", "payload": {}})
        await receiver.heard()
        page = await site.get(f"{API}/deliveries?webhook={made.json['id']}")
        (delivery,) = page.json["deliveries"]
        await app.wait(delivery["id"], timeout=15)
        again = await site.call("POST", f"{API}/deliveries/{delivery['id']}/resend", {})
        assert 200 == again.status
        calls = await receiver.heard(2)

    assert made.json["secrets"] == rotated.json["secrets"][1:]
    assert calls[0].body == calls[1].body
    assert "job.completed" == json.loads(calls[0].body)["type"]


async def _done() -> str:
    return "ok"
