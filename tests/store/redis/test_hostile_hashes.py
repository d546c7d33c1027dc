"""Invalid hashes that any client of the server may have written to a queue."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast.model.job import State
from holdfast.store import FailureSearch, Search
from holdfast.store.redis import RedisStore
from tests.wire.side import Side

if TYPE_CHECKING:
    from tests.servers import Valkey

pytestmark = pytest.mark.redis

VALID = {
    b"name": b"work",
    b"data": b"{}",
    b"opts": b"{}",
    b"timestamp": b"1768473000000",
    b"delay": b"0",
    b"priority": b"0",
}
INVALID = (
    b"",
    b"x",
    b"-1",
    b"1e400",
    b"nan",
    b"9" * 400,
    b"\xff\xfe",
    b"\x00",
    b"[",
    b'{"a":',
    b"{}",
)
FIELDS = (
    *VALID,
    *(b"atm", b"ats", b"stc", b"progress", b"returnvalue", b"failedReason", b"stacktrace"),
    *(b"processedOn", b"finishedOn", b"pb", b"parentKey", b"parent", b"rjk", b"deid", b"defa"),
)
OPTIONS = (
    b'{"attempts": 1e308, "backoff": {"type": [], "delay": "x"}}',
    b'{"attempts": -5, "backoff": -1, "delay": "soon", "priority": {}}',
    b'{"removeOnComplete": "maybe", "removeOnFail": {"age": [], "count": -1}}',
    b'{"parent": 5, "fpof": "x", "kl": -3, "de": [], "tm": 1}',
    b"[]",
    b"null",
    b'"text"',
)


def _hashes() -> dict[str, dict[bytes, bytes]]:
    found = {"nothing": {b"x": b"y"}, "only a name": {b"name": b"work"}}
    for field in FIELDS:
        for number, value in enumerate(INVALID):
            found[f"{field.decode()} {number}"] = {**VALID, field: value}
        found[f"no {field.decode()}"] = {k: v for k, v in VALID.items() if k != field}
    for number, options in enumerate(OPTIONS):
        found[f"options {number}"] = {**VALID, b"opts": options}
    return found


HASHES = _hashes()


@pytest.fixture
def url(valkey_server: Valkey) -> str:
    return f"{valkey_server.url}?prefix=h{uuid.uuid4().hex[:10]}"


@pytest.mark.req("B-1", "A-3")
@pytest.mark.parametrize("part", range(6))
async def test_hostile_hash_neither_stops_the_queue_nor_its_readers(url: str, part: int) -> None:
    prefix = url.rpartition("=")[2]
    names = sorted(HASHES)[part::6]
    async with RedisStore.from_url(url) as store, Redis.from_url(url.partition("?")[0]) as raw:
        for number, name in enumerate(names):
            key = f"{prefix}:q:{number}"
            await raw.hset(key, mapping=HASHES[name])
            await raw.lpush(f"{prefix}:q:wait", number)
        await raw.hset(f"{prefix}:q:valid", mapping=VALID)
        await raw.lpush(f"{prefix}:q:wait", "valid")
        side = Side(store)

        found = [job for _ in range(len(names) + 5) for job in await side.claim()]
        for number, job in enumerate(found):
            if number % 2 and job.id != "q:valid":
                await side.fail(job, category="PERMANENT")
            else:
                await side.complete(job)
        await store.find(Search())
        await store.failures(FailureSearch())
        await store.stats(timedelta(hours=1))
        await store.overdue(1000)
        await store.promote(1000)
        ids = [f"q:{number}" for number in range(len(names))]
        await store.history(ids)
        jobs = await store.get([*ids, "q:valid"])

    valid = jobs[-1]
    assert valid is not None
    assert State.COMPLETED is valid.state
    assert [] == [job.id for job in jobs if job and job.state is State.RUNNING]
