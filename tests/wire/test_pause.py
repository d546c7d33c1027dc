"""Pausing across versions: no job may fall between two lists."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.wire.peer import BULLMQ_5, BULLMQ_6

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side


@pytest.mark.req("B-5")
async def test_queue_paused_by_node_gives_us_nothing_until_resumed(side: Side, peer: Peer) -> None:
    await peer.ask("add", queue="q", job="before", data={})
    await peer.ask("call", queue="q", method="pause")
    await side.add("during", {})

    assert [] == await side.claim()
    (queue,) = await side.store.queues()
    assert queue.paused
    await peer.ask("call", queue="q", method="resume")

    assert {"before", "during"} == {job.type for job in await side.take(2)}


@pytest.mark.req("B-5")
async def test_queue_paused_by_us_holds_node_workers_back(side: Side, peer: Peer) -> None:
    await peer.ask("work", queue="q")
    await side.store.configure("q", {"paused": True})
    await peer.ask("add", queue="q", job="node", data={})
    await side.add("python", {})

    assert await peer.ask("call", queue="q", method="isPaused")
    assert None is await peer.ask("until", match={"on": "started"}, ms=700)
    await side.store.configure("q", {"paused": False})

    await peer.until("completed", 2)


@pytest.mark.req("B-5", "S-1")
@pytest.mark.parametrize(
    ("pauser", "resumer"), list(itertools.product(["python", BULLMQ_5, BULLMQ_6], repeat=2))
)
async def test_no_job_is_lost_when_either_side_pauses_or_resumes(
    side: Side,
    start_peer: Callable[[str], Awaitable[Peer]],
    raw: Redis,
    prefix: str,
    pauser: str,
    resumer: str,
) -> None:
    peers = {BULLMQ_5: await start_peer(BULLMQ_5), BULLMQ_6: await start_peer(BULLMQ_6)}

    async def switch(who: str, paused: bool) -> None:
        if who == "python":
            await side.store.configure("q", {"paused": paused})
        else:
            await peers[who].ask("call", queue="q", method="pause" if paused else "resume")

    await side.add("before", {})
    await switch(pauser, True)
    await side.add("python", {})
    if BULLMQ_6 not in (pauser, resumer):
        await peers[BULLMQ_5].ask("add", queue="q", job="five", data={})
    elif BULLMQ_5 not in (pauser, resumer):
        await peers[BULLMQ_6].ask("add", queue="q", job="six", data={})
    await switch(resumer, False)

    expected = await raw.incrby(f"{prefix}:q:id", 0)
    taken = await side.take(expected)
    assert expected == len({job.id for job in taken})


@pytest.mark.req("B-5", "S-1")
async def test_our_resume_merges_what_both_versions_left(
    side: Side, start_peer: Callable[[str], Awaitable[Peer]]
) -> None:
    five, six = await start_peer(BULLMQ_5), await start_peer(BULLMQ_6)
    await five.ask("add", queue="q", job="before", data={})
    await five.ask("call", queue="q", method="pause")
    await six.ask("add", queue="q", job="six", data={})

    await side.store.configure("q", {"paused": False})

    assert {"before", "six"} == {job.type for job in await side.take(2)}
