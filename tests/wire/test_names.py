"""Every name that BullMQ accepts can be worked and, under the bullmq profile, submitted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, JobContext, ValidationError
from holdfast.model.job import State
from holdfast.store.redis import RedisStore
from holdfast.worker.worker import Worker
from tests.wire.side import Side
from tests.worker.rig import working

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.servers import Valkey
    from tests.wire.peer import Peer

NAMES = ["mail:send", "send a mail", "{tag}", "größe/日本", "*", "a|b\\c"]
WITHIN = 15


@pytest.mark.req("B-1", "B-9")
@pytest.mark.parametrize("queue", ["q", "{mail}", "my mails"])
async def test_node_jobs_of_any_name_run_by_name_and_by_catch_all(
    valkey_server: Valkey, prefix: str, peer: Peer, queue: str
) -> None:
    app = Holdfast(f"{valkey_server.url}?prefix={prefix}")

    @app.handler(queue, NAMES[0])
    async def send(payload: object) -> dict[str, object]:
        return {"by": "name", "payload": payload}

    @app.handler(queue)
    async def others(context: JobContext, payload: object) -> dict[str, object]:
        return {"by": "catch-all", "type": context.type, "payload": payload}

    await peer.ask("listen", queue=queue)
    ids = [await peer.ask("add", queue=queue, job=name, data={"n": 1}) for name in NAMES]
    async with working(app, queues=(queue,)):
        await peer.until("event:completed", len(NAMES))

    jobs = [await peer.ask("job", queue=queue, id=each) for each in ids]
    first, *rest = [job["returnvalue"] for job in jobs]
    assert {"by": "name", "payload": {"n": 1}} == first
    assert [{"by": "catch-all", "type": name, "payload": {"n": 1}} for name in NAMES[1:]] == rest


@pytest.mark.req("B-9")
async def test_burst_ends_after_the_jobs_of_a_catch_all(
    valkey_server: Valkey, prefix: str, peer6: Peer
) -> None:
    app = Holdfast(f"{valkey_server.url}?prefix={prefix}")
    ran: list[str] = []

    @app.handler("q")
    async def others(context: JobContext, payload: object) -> None:
        ran.append(context.type)

    await peer6.ask("add", queue="q", job="a b", data={})
    async with asyncio.timeout(WITHIN):
        await Worker(app, queues=["q"]).run(burst=True)

    assert ["a b"] == ran


@pytest.mark.req("B-1", "B-9")
async def test_python_submits_any_name_under_the_bullmq_profile(
    valkey_server: Valkey, prefix: str, peer: Peer
) -> None:
    app = Holdfast(f"{valkey_server.url}?prefix={prefix}", queues={"{mail}": "bullmq"})
    async with app:
        jobs = [await app.submit(name, {"n": 1}, queue="{mail}") for name in NAMES]
        await peer.ask("work", queue="{mail}")
        await peer.until("completed", len(NAMES))

        assert NAMES == [(await app.get(job.job_id)).type for job in jobs]
        with pytest.raises(ValidationError):
            await app.submit("mail:send", {}, queue="plain")


@pytest.mark.req("B-1", "B-9")
async def test_prefix_may_hold_colons(
    valkey_server: Valkey, prefix: str, start_peer: Callable[[str], Awaitable[Peer]]
) -> None:
    peer, deep = await start_peer("bullmq"), f"{prefix}:eu:west"
    await peer.ask("use", prefix=deep)
    tree = {
        "name": "parent",
        "queueName": "q",
        "children": [{"name": "child", "queueName": "q", "data": {}}],
    }
    flow = await peer.ask("flow", tree=tree)
    async with RedisStore.from_url(f"{valkey_server.url}?prefix={deep}") as store:
        side = Side(store)
        for _ in range(2):
            (job,) = await side.take()
            await side.complete(job)

        assert State.COMPLETED is (await side.get(f"q:{flow['id']}")).state
    assert "completed" == await peer.ask("state", queue="q", id=flow["id"])
