"""Webhooks over HTTP, separate for each tenant."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from standardwebhooks import Webhook as Verifier

from holdfast import Client, Holdfast, NotFoundError, ValidationError
from holdfast.cli import cli
from holdfast.errors import StoreError
from holdfast.webhooks import WebhookSettings
from tests.http.site import API, running
from tests.http.test_client import listening as service_on_a_socket
from tests.webhooks.receiver import Receiver, listening
from tests.worker.rig import working

if TYPE_CHECKING:
    from pathlib import Path

ALLOW = WebhookSettings(allow=("http", "ports", "127.0.0.0/8"), timeout=timedelta(seconds=2))


@pytest.mark.req("A-19", "A-20")
async def test_webhook_receives_messages_of_its_own_tenant_only() -> None:
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
        (call,) = await receiver.wait_for()
        listed = await site.get(f"{API}/webhooks", key=acme)
        theirs = await site.get(f"{API}/webhooks", key=other)
        sent = await site.get(f"{API}/deliveries", key=acme)
        unseen = await site.get(f"{API}/deliveries", key=other)
        path = f"{API}/webhooks/{made.json['id']}"
        assert 404 == (await site.get(path, key=other)).status
        assert 404 == (await site.call("DELETE", path, key=other)).status
        assert 200 == (await site.call("DELETE", path, key=acme)).status

    message = Verifier(made.json["secrets"][0]).verify(call.body, call.headers)
    assert (job.json["job_id"], "default", "ok") == tuple(
        message["data"][name] for name in ("job_id", "queue", "result")
    )
    assert [[]] == [one["secrets"] for one in listed.json["webhooks"]]
    assert [] == theirs.json["webhooks"]
    assert [job.json["job_id"]] == [one["job_id"] for one in sent.json["deliveries"]]
    assert [] == unseen.json["deliveries"]
    assert 1 == len(receiver.calls)


@pytest.mark.req("A-19")
async def test_receivers_that_never_answer_hold_up_their_own_tenant_only() -> None:
    app = Holdfast("memory://", webhooks=ALLOW)
    app.task("t")(_done)
    served = ("acme/default", "other/default")
    silent = Receiver(answer=lambda _: 60.0)
    async with (
        listening(silent),
        listening() as good,
        working(app, queues=served),
        running(app) as site,
    ):
        acme, other = await site.key("admin", "acme"), await site.key("admin", "other")
        for _ in range(100):
            await site.post(f"{API}/webhooks", {"url": silent.url}, key=acme)
        full = await site.post(f"{API}/webhooks", {"url": silent.url}, key=acme)
        await site.post(f"{API}/webhooks", {"url": good.url}, key=other)
        for _ in range(10):
            await site.post(f"{API}/jobs", {"type": "t", "payload": {}}, key=acme)
        await silent.wait_for(20)
        begun = asyncio.get_running_loop().time()
        await site.post(f"{API}/jobs", {"type": "t", "payload": {}}, key=other)
        await good.wait_for()
        took = asyncio.get_running_loop().time() - begun

    assert (429, "QUOTA_EXCEEDED") == (full.status, full.json["error"]["code"])
    assert took < 10  # a thousand messages of two seconds each are before it, fifty at once


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
async def test_invalid_webhook_is_refused_by_field(body: dict[str, object], field: str) -> None:
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
        await receiver.wait_for()
        page = await site.get(f"{API}/deliveries?webhook={made.json['id']}")
        (delivery,) = page.json["deliveries"]
        await app.wait(delivery["id"], timeout=15)
        again = await site.call("POST", f"{API}/deliveries/{delivery['id']}/resend", {})
        assert 200 == again.status
        calls = await receiver.wait_for(2)

    assert made.json["secrets"] == rotated.json["secrets"][1:]
    assert calls[0].body == calls[1].body
    assert "job.completed" == json.loads(calls[0].body)["type"]


@pytest.mark.req("A-19")
async def test_callback_secret_is_created_over_http() -> None:
    app = Holdfast("memory://", webhooks=ALLOW)
    app.task("t")(_done)
    async with listening() as receiver, working(app), running(app) as site:
        rotated = await site.call("POST", f"{API}/webhooks/callback/rotate", {})
        job = {"type": "t", "payload": {}, "callback_url": receiver.url}
        await site.call("POST", f"{API}/jobs", job)
        (call,) = await receiver.wait_for()
        again = await site.call("POST", f"{API}/webhooks/callback/rotate", {"keep": 0})

    assert (
        "ok"
        == Verifier(rotated.json["secrets"][0]).verify(call.body, call.headers)["data"]["result"]
    )
    assert 1 == len(again.json["secrets"])
    assert rotated.json["secrets"] != again.json["secrets"]


@pytest.mark.req("A-19")
async def test_client_and_commands_manage_webhooks_of_a_service() -> None:
    app = Holdfast("memory://", webhooks=ALLOW)
    app.task("t")(_done)
    async with (
        listening() as receiver,
        working(app),
        service_on_a_socket(app) as served,
        Client(served.url) as client,
    ):
        made = await client.webhooks.add(receiver.url, states=["COMPLETED"], tags={"a": "b"})
        await client.submit("t", {}, tags={"a": "b"})
        (call,) = await receiver.wait_for()
        listed = await client.webhooks.list()
        page = await client.webhooks.deliveries(made.id)
        await client.wait(page.deliveries[0].id, timeout=15)
        await client.webhooks.resend(page.deliveries[0].id)
        await receiver.wait_for(2)
        rotated = await client.webhooks.rotate(made.id)
        off = await client.webhooks.switch(made.id, enabled=False)
        on = await client.webhooks.switch(made.id, enabled=True)
        commands = (("--json",), ("deliveries",), ("remove", "x"))
        shown, seen, unknown = [
            await asyncio.to_thread(_command, "webhooks", *one, "--url", served.url)
            for one in commands
        ]
        await client.webhooks.remove(made.id)
        with pytest.raises(NotFoundError):
            await client.webhooks.get(made.id)
        with pytest.raises(ValidationError, match="url"):
            await client.webhooks.add("https://10.0.0.1/")
        with pytest.raises(StoreError, match="rotate, or give the store's URL"):
            await client.webhooks.callback_secrets()

    Verifier(made.secrets[0]).verify(call.body, call.headers)
    assert [(made.id, made.url, made.states)] == [(w.id, w.url, w.states) for w in listed]
    assert (2, made.secrets) == (len(rotated.secrets), rotated.secrets[1:])
    assert (False, True, ()) == (off.enabled, on.enabled, off.secrets)
    assert [made.id] == [one["id"] for one in json.loads(shown.output)]
    assert page.deliveries[0].id in seen.output
    assert unknown.exit_code


@pytest.mark.req("A-19")
def test_blocking_code_manages_webhooks_of_its_store(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    hooks = app.sync.webhooks
    made = hooks.add("https://example.org/", types=["a"])

    assert [made] == hooks.list() == [hooks.get(made.id)]
    assert 2 == len(hooks.rotate(made.id).secrets)
    assert () == hooks.deliveries().deliveries
    assert 1 == len(hooks.callback_secrets())
    hooks.remove(made.id)
    assert [] == hooks.list()
    app.sync.close()


def _command(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


async def _done() -> str:
    return "ok"
