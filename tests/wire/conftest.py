"""A real server with a holdfast store and BullMQ clients of both major versions."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from holdfast.store.redis import RedisStore
from tests.wire.peer import BULLMQ_5, BULLMQ_6, NodeMissing, Peer, cache_folder, installed
from tests.wire.side import Side

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.servers import Valkey


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/wire/" in item.path.as_posix():
            item.add_marker(pytest.mark.wire)
            item.add_marker(pytest.mark.redis)


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """The folder with the BullMQ releases, which stays between runs."""
    try:
        return installed(cache_folder())
    except (NodeMissing, subprocess.SubprocessError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no Node, or no network to install BullMQ from: {error}")


@pytest.fixture
def prefix(valkey_server: Valkey) -> str:
    """A new prefix in an empty database, so that no job of an earlier test runs."""
    with BlockingRedis(port=valkey_server.port) as client:
        client.flushdb()
    return f"w{uuid.uuid4().hex[:10]}"


@pytest.fixture
async def raw(valkey_server: Valkey) -> AsyncIterator[Redis]:
    """A plain client of the server."""
    client = Redis(port=valkey_server.port, decode_responses=True)
    yield client
    await client.aclose()


@pytest.fixture
async def side(valkey_server: Valkey, prefix: str) -> AsyncIterator[Side]:
    """The Python side: a started store and a worker on it."""
    async with RedisStore.from_url(f"{valkey_server.url}?prefix={prefix}") as store:
        yield Side(store)


@pytest.fixture(scope="session")
async def idle_peers() -> AsyncIterator[list[Peer]]:
    """Idle Node processes, reused because starting one takes most of a second."""
    idle: list[Peer] = []
    yield idle
    for peer in idle:
        await peer.__aexit__()


@pytest.fixture
async def start_peer(
    node_folder: Path, valkey_server: Valkey, prefix: str, idle_peers: list[Peer]
) -> AsyncIterator[Callable[[str], Awaitable[Peer]]]:
    """Return a function that starts or reuses a Node process for this test."""
    used: list[Peer] = []

    async def start(package: str = BULLMQ_6) -> Peer:
        peer = next((peer for peer in idle_peers if peer.package == package), None)
        if peer is None:
            peer = await Peer(node_folder, package, valkey_server.port).__aenter__()
        else:
            idle_peers.remove(peer)
        used.append(peer)
        await peer.ask("use", prefix=prefix)
        return peer

    yield start
    for peer in used:
        if peer.is_alive:
            await peer.ask("use", prefix="nothing")
            idle_peers.append(peer)
        else:
            await peer.__aexit__()


@pytest.fixture(params=[BULLMQ_6, BULLMQ_5])
async def peer(
    request: pytest.FixtureRequest, start_peer: Callable[[str], Awaitable[Peer]]
) -> Peer:
    """A BullMQ client, of each major version in turn."""
    return await start_peer(request.param)


@pytest.fixture
async def peer6(start_peer: Callable[[str], Awaitable[Peer]]) -> Peer:
    """A BullMQ client of the newest major version."""
    return await start_peer(BULLMQ_6)
