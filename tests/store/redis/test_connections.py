"""Connections for frequent calls: reused while they work, dropped after a cancelled call."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast.errors import StoreError
from holdfast.store.redis import RedisStore

if TYPE_CHECKING:
    from tests.servers import Valkey

pytestmark = pytest.mark.redis


def opened(server: Valkey) -> RedisStore:
    return RedisStore.from_url(f"{server.url}?prefix=l{uuid.uuid4().hex[:10]}&timeout=5")


async def others(raw: Redis) -> set[str]:
    """Return the ids of the other clients."""
    own = await raw.client_id()
    return {each["id"] for each in await raw.client_list()} - {str(own)}


async def test_call_after_the_server_closed_the_connection_uses_a_new_one(
    valkey_server: Valkey,
) -> None:
    async with opened(valkey_server) as store, Redis(port=valkey_server.port) as raw:
        await store.get(["missing"])
        before = await others(raw)
        for each in before:
            await raw.client_kill_filter(_id=each)

        assert [None] == await store.get(["missing"])

        assert not before & await others(raw)


async def test_sequential_calls_share_a_connection(valkey_server: Valkey) -> None:
    async with opened(valkey_server) as store, Redis(port=valkey_server.port) as raw:
        await store.get(["missing"])
        before = await others(raw)

        for _ in range(5):
            await store.get(["missing"])

        assert before == await others(raw)


@pytest.mark.req("S-9")
async def test_answer_to_a_cancelled_call_reaches_no_other_call(
    valkey_server: Valkey,
) -> None:
    async with opened(valkey_server) as store:
        await store.lock("mine", "me", store.session.settings.timeout, b"data")
        for _ in range(20):
            call = asyncio.ensure_future(
                store.lock("mine", "other", store.session.settings.timeout)
            )
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

            assert [None] == await store.get(["missing"])


async def test_connection_stays_usable_after_a_script_failed(valkey_server: Valkey) -> None:
    async with opened(valkey_server) as store:
        with pytest.raises(StoreError, match="Bad data"):
            await store.session.call("get", b"\xc1")

        assert [None] == await store.get(["missing"])
