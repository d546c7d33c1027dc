"""Backoff strategies of Node's jobs that are functions of a worker."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, PermanentError
from tests.waiting import eventually
from tests.worker.rig import EventLog, until, working

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.servers import Valkey
    from tests.wire.peer import Peer

OPTIONS = {"jobId": "a", "attempts": 5, "backoff": {"type": "mine", "delay": 250}}
MINUTE = 60_000


def app_with(url: str, **options: Any) -> Holdfast:
    """Return an app whose handler fails every job of queue python."""
    app = Holdfast(url)

    @app.handler("python", **options)
    async def fail(payload: object) -> None:
        raise RuntimeError("x")

    return app


async def by_node(peer: Peer, **opts: Any) -> None:
    await peer.ask("add", queue="node", job="a", data={"fail": "x"}, opts=OPTIONS)
    await peer.ask("work", queue="node", opts=opts)


async def shown(peer: Peer, queue: str) -> dict[str, Any]:
    job = await peer.ask("job", queue=queue, id="a")
    return {name: job.get(name) for name in ("state", "delay", "attemptsMade", "failedReason")}


@pytest.mark.req("B-1")
async def test_function_of_the_handler_delays_a_retry_as_in_node(
    valkey_server: Valkey, prefix: str, peer: Peer
) -> None:
    seen: list[tuple[int, timedelta]] = []

    def strategy(attempt: int, initial: timedelta, longest: timedelta) -> timedelta:
        seen.append((attempt, initial))
        return timedelta(minutes=1)

    await by_node(peer, strategy=MINUTE)
    await peer.until("failed")
    await peer.ask("add", queue="python", job="a", data={}, opts=OPTIONS)
    url = f"{valkey_server.url}?prefix={prefix}"
    async with working(app_with(url, backoff=strategy), queues=("python",)):
        await until_state(peer, "delayed")

    assert await shown(peer, "node") == await shown(peer, "python")
    assert [(1, timedelta(milliseconds=250))] == seen


@pytest.mark.req("B-1")
async def test_function_can_end_a_job_as_in_node(
    valkey_server: Valkey, prefix: str, peer: Peer
) -> None:
    def strategy(attempt: int, initial: timedelta, longest: timedelta) -> timedelta:
        raise PermanentError("no more")

    await by_node(peer, strategy=-1)
    await peer.until("failed")
    await peer.ask("add", queue="python", job="a", data={}, opts=OPTIONS)
    url = f"{valkey_server.url}?prefix={prefix}"
    async with working(app_with(url, backoff=strategy), queues=("python",)):
        await until_state(peer, "failed")

    assert await shown(peer, "node") == await shown(peer, "python")


@pytest.mark.req("B-1", "B-5")
async def test_job_without_its_function_stays_active_as_in_node(
    valkey_server: Valkey, prefix: str, peer: Peer, raw: Redis
) -> None:
    await by_node(peer)
    await peer.until("error")
    await peer.ask("add", queue="python", job="a", data={}, opts=OPTIONS)
    app = app_with(f"{valkey_server.url}?prefix={prefix}")
    events = EventLog()
    async with working(app, queues=("python",), observer=events):
        await until(lambda: events.all("backoff.unknown"))

    assert "active" == (await shown(peer, "python"))["state"]
    assert await shown(peer, "node") == await shown(peer, "python")
    assert 1 == await raw.exists(f"{prefix}:python:a:lock")


async def until_state(peer: Peer, state: str) -> None:
    async def is_there() -> bool:
        return bool(state == await peer.ask("state", queue="python", id="a"))

    await eventually(is_there, every=0.05)
