"""Deduplication, rate limits and global concurrency hold on both sides, set by either."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, RateLimitedError
from holdfast.model.job import State
from holdfast.store import LimitRule, LimitState
from tests.waiting import eventually
from tests.wire.side import WITHIN
from tests.worker.rig import working

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.servers import Valkey
    from tests.wire.peer import Peer
    from tests.wire.side import Side


@pytest.mark.req("B-1")
async def test_deduplication_key_is_free_once_we_finished_its_job(side: Side, peer: Peer) -> None:
    options = {"deduplication": {"id": "K"}}
    first = await peer.ask("add", queue="q", job="one", data={}, opts=options)
    assert first == await peer.ask("add", queue="q", job="one", data={}, opts=options)

    (job,) = await side.take()
    await side.complete(job)
    second = await peer.ask("add", queue="q", job="one", data={}, opts=options)

    assert first != second
    assert State.SCHEDULED is (await side.get(f"q:{second}")).state


@pytest.mark.req("B-1")
async def test_throttling_key_outlives_its_job(side: Side, peer: Peer) -> None:
    options = {"deduplication": {"id": "K", "ttl": 60_000}}
    first = await peer.ask("add", queue="q", job="one", data={}, opts=options)
    (job,) = await side.take()
    await side.complete(job)

    assert first == await peer.ask("add", queue="q", job="one", data={}, opts=options)


@pytest.mark.req("B-1")
async def test_last_job_submitted_while_its_key_was_running_follows(side: Side, peer: Peer) -> None:
    options = {"deduplication": {"id": "K", "keepLastIfActive": True}}
    await peer.ask("add", queue="q", job="one", data={"n": 1}, opts=options)
    (job,) = await side.take()
    for n in (2, 3):
        await peer.ask("add", queue="q", job="one", data={"n": n}, opts=options)
    assert [] == await side.claim()

    await side.complete(job)

    (following,) = await side.take()
    assert b'{"n":3}' == following.payload


@pytest.mark.req("B-5")
async def test_global_concurrency_of_node_bounds_us(side: Side, peer: Peer) -> None:
    await peer.ask("call", queue="q", method="setGlobalConcurrency", args=[2])
    for n in range(4):
        await peer.ask("add", queue="q", job="some", data={"n": n})

    first = await side.claim(10)
    assert 2 == len(first)
    await side.complete(first[0])

    assert 1 == len(await side.claim(10))


@pytest.mark.req("B-5")
async def test_global_rate_limit_of_node_bounds_us(side: Side, peer: Peer) -> None:
    await peer.ask("call", queue="q", method="setGlobalRateLimit", args=[2, 400])
    for n in range(3):
        await peer.ask("add", queue="q", job="some", data={"n": n})

    assert 2 == len(await side.claim(10))
    assert [] == await side.claim(10)

    assert 1 == len(await side.take(1))


@pytest.mark.req("B-5")
async def test_job_started_in_the_last_moment_of_a_rate_window_opens_the_next(
    side: Side, peer6: Peer, raw: Redis, prefix: str
) -> None:
    await peer6.ask("call", queue="q", method="setGlobalRateLimit", args=[1, 60_000])
    for _ in range(40):
        await peer6.ask("add", queue="q", job="some", data={})

    for _ in range(40):
        await raw.set(f"{prefix}:q:limiter", 1, px=1)
        async with asyncio.timeout(WITHIN):
            while not await side.claim():
                pass
        assert 0 < await raw.pttl(f"{prefix}:q:limiter")


@pytest.mark.req("B-5")
async def test_rate_window_that_we_filled_holds_a_node_worker(
    side: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    await peer.ask("call", queue="q", method="setGlobalRateLimit", args=[1, 1000])
    for n in range(2):
        await peer.ask("add", queue="q", job="some", data={"n": n})
    await side.claim(1)

    await peer.ask("work", queue="q")

    assert None is await peer.ask("until", match={"on": "started"}, ms=300)
    assert "1" == await raw.get(f"{prefix}:q:limiter")
    await peer.until("completed")


@pytest.mark.req("B-5")
async def test_our_limit_of_a_queue_bounds_a_node_worker(side: Side, peer: Peer) -> None:
    await side.store.limit("queue:q", LimitRule(concurrency=1))
    for _ in range(2):
        await peer.ask("add", queue="q", job="some", data={"hang": True})

    await peer.ask("work", queue="q", opts={"concurrency": 5})

    await peer.until("started")
    assert None is await peer.ask("until", match={"on": "started"}, count=2, ms=400)
    await side.store.limit("queue:q", None)
    await peer.ask("add", queue="q", job="more", data={})
    await peer.until("started", 2)


@pytest.mark.req("B-5")
async def test_our_rate_of_a_queue_is_shared_with_a_node_worker(side: Side, peer: Peer) -> None:
    await side.store.limit("queue:q", LimitRule(rate=2, per=timedelta(seconds=30), burst=2))
    for _ in range(3):
        await peer.ask("add", queue="q", job="some", data={})
    assert 1 == len(await side.claim())

    await peer.ask("work", queue="q", opts={"concurrency": 5})

    await peer.until("completed")
    assert None is await peer.ask("until", match={"on": "started"}, count=2, ms=400)
    (used,) = await side.store.limits()
    assert ("queue:q", 2) == (used.scope, used.started)
    assert used.until is not None
    assert [] == await side.claim()


@pytest.mark.req("B-5")
async def test_limits_that_node_set_are_listed(side: Side, peer: Peer) -> None:
    await peer.ask("call", queue="q", method="setGlobalConcurrency", args=[2])
    await peer.ask("add", queue="q", job="some", data={})
    assert 1 == len(await side.claim())

    assert [LimitState(scope="queue:q", rule=LimitRule(concurrency=2), running=1)] == (
        await side.store.limits()
    )


@pytest.mark.req("B-5")
async def test_rate_limit_that_a_python_handler_meets_holds_both_sides(
    side: Side, peer: Peer, valkey_server: Valkey, raw: Redis, prefix: str
) -> None:
    app = Holdfast(f"{valkey_server.url}?prefix={prefix}")

    @app.handler("q")
    async def refuse(payload: object) -> None:
        raise RateLimitedError("429 Too Many Requests", retry_after=30)

    ids = [await peer.ask("add", queue="q", job="some", data={}) for _ in range(3)]
    async with working(app, queues=("q",), slots=1):
        await eventually(lambda: raw.exists(f"{prefix}:q:limiter"))

        async def is_returned() -> bool:
            return await raw.llen(f"{prefix}:q:active") == 0

        await eventually(is_returned)

    assert [] == await side.claim()
    assert 25_000 < await peer.ask("call", queue="q", method="getRateLimitTtl") <= 30_000
    assert ids[0] == await raw.lindex(f"{prefix}:q:wait", -1)
    assert 0 == (await peer.ask("job", queue="q", id=ids[0]))["attemptsMade"]
    await peer.ask("work", queue="q", opts={"limiter": {"max": 5, "duration": 1000}})
    assert None is await peer.ask("until", match={"on": "started"}, ms=300)
    await peer.ask("rest", queue="q")

    await peer.ask("call", queue="q", method="removeRateLimitKey")
    assert 3 == len(await side.claim(3))


@pytest.mark.req("B-5")
async def test_queue_that_node_closed_is_closed_for_us(side: Side, peer: Peer) -> None:
    await peer.ask("add", queue="q", job="some", data={})
    await peer.ask("call", queue="q", method="rateLimit", args=[400])

    assert [] == await side.claim()

    await side.take(1)
