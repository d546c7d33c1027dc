"""Named locks on Redis: expired ones are deleted, and a prefix reads no others."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast.store.redis import RedisStore
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers import Valkey

pytestmark = pytest.mark.redis
MINUTE = timedelta(minutes=1)
INDEXES = ("holds", "held", "ends")


@pytest.fixture
def prefix() -> str:
    return f"l{uuid.uuid4().hex[:10]}"


@pytest.fixture
async def store(valkey_server: Valkey, prefix: str) -> AsyncIterator[RedisStore]:
    async with RedisStore.from_url(f"{valkey_server.url}?prefix={prefix}") as store:
        yield store


@pytest.fixture
async def raw(valkey_server: Valkey) -> AsyncIterator[Redis]:
    async with Redis(port=valkey_server.port) as raw:
        yield raw


async def test_expired_locks_are_deleted(store: RedisStore, raw: Redis, prefix: str) -> None:
    for n in range(30):
        await store.lock(f"worker:{n}", "w", timedelta(milliseconds=1))
        await store.lock(f"released:{n}", "w", MINUTE)
        await store.lock(f"released:{n}", "w", timedelta(0))

    async def only_one_is_left() -> bool:
        await store.lock("leader", "me", MINUTE)
        names = [await raw.zrange(f"{prefix}:hf:{index}", 0, -1) for index in INDEXES[1:]]
        names.append(await raw.hkeys(f"{prefix}:hf:holds"))
        return names == [[b"leader"]] * 3

    await eventually(only_one_is_left)
    assert ["leader"] == [lock.name for lock in await store.locks("")]


async def test_a_prefix_reads_no_other_locks(
    store: RedisStore, raw: Redis, valkey_server: Valkey
) -> None:
    data = b"x" * 10_000
    for n in range(300):
        await store.lock(f"worker/loud:{n}", "w", MINUTE, data)
    await store.lock("worker/quiet:1", "w", MINUTE, b"1")
    await store.lock("worker/quiet2:1", "w", MINUTE, b"2")

    before = (await raw.info("stats"))["total_net_output_bytes"]
    found = await store.locks("worker/quiet:")
    sent = (await raw.info("stats"))["total_net_output_bytes"] - before

    assert [("worker/quiet:1", b"1")] == [(lock.name, lock.data) for lock in found]
    assert sent < 100_000
    assert 302 == len(await store.locks("worker"))


async def test_locks_that_an_older_version_writes_are_found(
    store: RedisStore, raw: Redis, prefix: str
) -> None:
    await store.lock("a:1", "w", MINUTE)
    ends = int((store.now() + MINUTE).timestamp() * 1_000_000)

    await raw.hset(f"{prefix}:hf:holds", "a:2", f"{ends}|1|vdata")  # type: ignore[misc]  # redis-py: a union

    assert ["a:1", "a:2"] == [lock.name for lock in await store.locks("a:")]
    assert not await store.lock("a:2", "w", 2 * MINUTE)
