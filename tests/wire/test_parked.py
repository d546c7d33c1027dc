"""Jobs that holdfast parks, because they may not start here, are ordinary waiting jobs for Node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.store import LimitRule

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side

ONE = LimitRule(concurrency=1)


async def traces(raw: Redis, prefix: str) -> list[str]:
    names = ("parked:*", "lane:*", "lanes:*", "parking")
    return [each for name in names async for each in raw.scan_iter(f"{prefix}:hf:{name}")]


@pytest.mark.req("B-1", "B-5")
@pytest.mark.parametrize("priority", ["CRITICAL", "NORMAL"])
async def test_node_takes_jobs_that_python_parked_in_their_order(
    side: Side, peer: Peer, raw: Redis, prefix: str, priority: str
) -> None:
    await side.store.limit("task:narrow", ONE)
    jobs = [await side.add("narrow", {}, priority=priority) for _ in range(4)]
    (running,) = await side.claim(10)
    state = "waiting" if priority == "CRITICAL" else "prioritized"
    counts = await peer.ask("call", queue="q", method="getJobCounts", args=[state])
    assert 3 == counts[state]
    assert state == await peer.ask("state", queue="q", id=jobs[1].id)

    await peer.ask("work", queue="q")
    started = await peer.until("completed", 3)

    assert [job.id for job in jobs[1:]] == [each["id"] for each in started]
    await side.complete(running)
    assert [] == await side.claim(10)
    assert [] == await traces(raw, prefix)


@pytest.mark.req("B-1", "B-5")
async def test_jobs_of_node_in_front_of_and_behind_parked_ones_are_claimed(
    side: Side, peer: Peer
) -> None:
    await side.store.limit("task:narrow", ONE)
    for _ in range(3):
        await peer.ask("add", queue="q", job="narrow", data={})
    await side.claim(10)
    behind = await peer.ask("add", queue="q", job="other", data={})
    front = await peer.ask("add", queue="q", job="other", data={}, opts={"lifo": True})
    low = await peer.ask("add", queue="q", job="other", data={}, opts={"priority": 7})

    claimed = [job.id for job in await side.claim(10)]

    assert [f"q:{front}", f"q:{behind}", f"q:{low}"] == claimed


@pytest.mark.req("B-1", "B-5")
@pytest.mark.parametrize("method", ["drain", "obliterate"])
async def test_node_empties_a_queue_with_parked_jobs(
    side: Side, peer: Peer, raw: Redis, prefix: str, method: str
) -> None:
    await side.store.limit("task:narrow", ONE)
    for _ in range(3):
        await side.add("narrow", {})
    (running,) = await side.claim(10)
    await side.complete(running)
    await side.add("unknown", {}, priority="LOW")
    (running,) = await side.claim(10, types=("narrow",))
    assert [] != await traces(raw, prefix)

    await peer.ask("call", queue="q", method="pause")
    await peer.ask("call", queue="q", method=method, args=[{"force": True}])
    await peer.ask("call", queue="q", method="resume")
    for _ in range(20):
        await side.store.promote(100)
    later = await side.add("later", {})

    assert [later.id] == [job.id for job in await side.claim(10)]
    assert [] == await traces(raw, prefix)


@pytest.mark.req("B-1", "B-5")
async def test_priority_that_node_changes_moves_a_parked_job(side: Side, peer: Peer) -> None:
    await side.store.limit("task:narrow", ONE)
    running, first, second = [await side.add("narrow", {}) for _ in range(3)]
    (taken,) = await side.claim(10)
    assert running.id == taken.id

    change = {"method": "changePriority", "args": [{"priority": 3}]}
    await peer.ask("onJob", queue="q", id=first.id, **change)
    await side.complete(taken)

    (taken,) = await side.claim(10)
    assert second.id == taken.id
    await side.complete(taken)
    assert [first.id] == [job.id for job in await side.claim(10)]
