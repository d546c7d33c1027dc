"""Jobs that BullMQ workers end reach webhooks; encrypted ones pass through Node unread."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.encryption import KeyRing, encrypted
from holdfast.encryption.envelope import unwrap
from holdfast.webhooks import WebhookSettings
from tests.webhooks.receiver import listening
from tests.worker.rig import working

if TYPE_CHECKING:
    from tests.servers import Valkey
    from tests.wire.peer import Peer
    from tests.wire.side import Side

ALLOW = WebhookSettings(allow=("http", "ports", "127.0.0.0/8"), timeout=timedelta(seconds=2))


@pytest.mark.req("A-19", "B-1")
async def test_webhook_reports_a_job_that_node_ended(
    valkey_server: Valkey, prefix: str, peer: Peer
) -> None:
    app = Holdfast(f"{valkey_server.url}?prefix={prefix}", webhooks=ALLOW)
    async with listening() as receiver, working(app, queues=("other",)):
        await app.webhooks.add(receiver.url, queues=["q"], include_result=True)
        await peer.ask("work", queue="q")
        job = await app.submit("greet", {"result": {"ok": 1}}, queue="q")
        (call,) = await receiver.wait_for()

    data = json.loads(call.body)["data"]
    assert (job.job_id, "COMPLETED", {"ok": 1}) == (data["job_id"], data["state"], data["result"])


@pytest.mark.req("B-1", "M-12")
async def test_node_runs_an_encrypted_job_without_reading_it(side: Side, peer: Peer) -> None:
    ring = KeyRing.parse(KeyRing.generate("k1"))
    async with Holdfast(store=encrypted(side.store, ring)) as app:
        await peer.ask("work", queue="q")
        job = await app.submit("greet", {"iban": "DE00"}, queue="q")
        status = await app.wait(job.job_id, timeout=15)
        stored = await side.get(job.job_id)

    assert "COMPLETED" == status.state
    assert ("k1", True) == (unwrap(stored.payload)[0], b"DE00" not in stored.payload)
