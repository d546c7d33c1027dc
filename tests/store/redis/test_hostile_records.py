"""Another client damages records: they are listed as damaged, and hide no others."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast import Holdfast
from holdfast.model.reserved import API_KEYS
from holdfast.runtime.randomness import Randomness
from holdfast.store import RecordWrite
from holdfast.store.browsing import every_record
from tests.http.site import running

if TYPE_CHECKING:
    from tests.servers import Valkey

pytestmark = [pytest.mark.redis, pytest.mark.req("R-2")]

DAMAGES = (b"", b"|", b"garbage", b"1x|{}", b"\xff\xfe", b"-1|{}", b"5|", b"9" * 400 + b"|{}")


@pytest.fixture
def prefix() -> str:
    return f"w{uuid.uuid4().hex[:10]}"


@pytest.mark.req("A-20")
async def test_damaged_api_key_does_not_open_the_service(
    valkey_server: Valkey, prefix: str
) -> None:
    url = f"{valkey_server.url}?prefix={prefix}"
    kept, order = f"{prefix}:hf:record:key", f"{prefix}:hf:records:key"
    async with running(Holdfast(url)) as site, Redis.from_url(valkey_server.url) as raw:
        assert 200 == (await site.get("/api/v1/queues")).status
        await site.key("admin")
        (key_id,) = await raw.hkeys(kept)
        good = await raw.hget(kept, key_id)

        for damage in DAMAGES:
            await raw.hset(kept, key_id, damage)
            site.forget_keys()
            assert 401 == (await site.get("/api/v1/queues")).status, damage
        await raw.hset(kept, key_id, good)
        await raw.delete(order)
        site.forget_keys()
        assert 401 == (await site.get("/api/v1/queues")).status
        await raw.delete(kept)
        await raw.zadd(order, {key_id: 0})
        site.forget_keys()
        assert 401 == (await site.get("/api/v1/queues")).status


async def test_damaged_records_hide_no_others(valkey_server: Valkey, prefix: str) -> None:
    url = f"{valkey_server.url}?prefix={prefix}"
    kept, order = f"{prefix}:hf:record:{API_KEYS}", f"{prefix}:hf:records:{API_KEYS}"
    async with Holdfast(url) as app, Redis.from_url(valkey_server.url) as raw:
        names = [f"z{n:04}" for n in range(30)]
        await app.store.keep([RecordWrite(kind=API_KEYS, key=name, data=b"{}") for name in names])
        damaged = [f"a{n:04}" for n in range(1200)]
        await raw.hset(kept, mapping=dict.fromkeys(damaged, b"x"))
        unreadable = [b"b\xff%04d" % n for n in range(1200)]
        await raw.hset(kept, mapping=dict.fromkeys(unreadable, b"1|{}"))
        await raw.zadd(order, dict.fromkeys([*damaged, *unreadable], 0))

        found = await every_record(app.store, API_KEYS)
        first = await app.store.browse(API_KEYS, after=damaged[-1], limit=20)
        newest = await app.store.browse(API_KEYS, limit=31, last=True)

        assert [*damaged, *names] == [record.key for record in found]
        assert names[:20] == [record.key for record in first]
        assert [*reversed(names), damaged[-1]] == [record.key for record in newest]
        assert (b"x", 0) == (found[0].data, found[0].version)


async def test_damaged_record_is_replaced_and_deleted(valkey_server: Valkey, prefix: str) -> None:
    url = f"{valkey_server.url}?prefix={prefix}"
    async with Holdfast(url) as app, Redis.from_url(valkey_server.url) as raw:
        name = Randomness().token()
        await app.store.keep([RecordWrite(kind="t", key=name, data=b"{}")])
        await raw.hset(f"{prefix}:hf:record:t", name, b"x")
        (record,) = await app.store.records("t", [name])
        assert record is not None

        write = RecordWrite(kind="t", key=name, data=b"[]", version=record.version)
        assert [1] == await app.store.keep([write])
        assert [0] == await app.store.keep([RecordWrite(kind="t", key=name, data=None)])
        assert [] == await app.store.browse("t")
