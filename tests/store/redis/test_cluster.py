"""One prefix, one slot: the whole store works on a cluster."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from holdfast.model.job import State
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore, Search
from holdfast.store.redis import RedisStore
from tests.conformance.snapshot import differences, snapshot
from tests.conformance.world import LABELS, World
from tests.store.redis.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast.store import Store
    from tests.store.redis.cluster import Node

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Node]]:
    """Three nodes."""
    with running_cluster() as nodes:
        yield nodes


@pytest.fixture
async def world(cluster: list[Node]) -> AsyncIterator[World]:
    """Every situation of the conformance suite, on the cluster."""

    def opened(clock: ManualClock) -> Store:
        url = f"redis://127.0.0.1:{cluster[0].port}?cluster=1&prefix={{bull}}"
        return RedisStore.from_url(url, clock=clock)

    world = World(opened)
    await world.store.start()
    yield world
    await world.store.close()


@pytest.mark.slow
@pytest.mark.req("B-6")
async def test_cluster_holds_every_situation_like_the_reference(
    world: World, cluster: list[Node]
) -> None:
    reference = World(MemoryStore)
    await reference.build()
    await world.build()

    assert [] == differences(reference.answers, world.answers, "answers")
    expected = await snapshot(reference.store, LABELS)
    assert [] == differences(expected, await snapshot(world.store, LABELS), "snapshot")
    sizes = []
    for node in cluster:
        with Redis(port=node.port) as client:
            sizes.append(client.dbsize())
    assert 1 == len([size for size in sizes if size])


@pytest.mark.req("B-6")
async def test_waiting_worker_is_woken_on_a_cluster(cluster: list[Node]) -> None:
    from tests.wire.side import Side

    url = f"redis://127.0.0.1:{cluster[1].port}?cluster=1&prefix={{wake}}"
    async with RedisStore.from_url(url) as store:
        side = Side(store)
        waiting = asyncio.create_task(store.arrivals(["q"], 0, timedelta(seconds=10)))

        job = await side.add("wake", {})

        assert 0 != await waiting
        (taken,) = await side.claim()
        await side.complete(taken)
        page = await store.find(Search(states=(State.COMPLETED,)))
        assert [job.id] == [found.id for found in page.jobs]


async def test_prefix_without_a_tag_is_refused_on_a_cluster(cluster: list[Node]) -> None:
    from holdfast.errors import StoreError

    with pytest.raises(StoreError, match="tag"):
        RedisStore.from_url(f"redis://127.0.0.1:{cluster[0].port}?cluster=1&prefix=bull")
