"""Another client writes anything into any key: one job or setting is hurt, and all else goes on."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import msgspec
import pytest
from redis.asyncio import Redis

from holdfast import Holdfast
from holdfast.operations.doctor import examine
from holdfast.store.redis.own_keys import TYPES
from tests.store.redis.hostile import damages, faults, kind_of, populate
from tests.wire.side import Side

if TYPE_CHECKING:
    from tests.servers import Valkey

pytestmark = pytest.mark.redis

PARTS = 6


@pytest.fixture
def url(valkey_server: Valkey) -> str:
    return f"{valkey_server.url}?prefix=w{uuid.uuid4().hex[:10]}"


class Population:
    """Keys that can be put back as they were."""

    def __init__(self, raw: Redis, prefix: str) -> None:
        self.raw = raw
        self._pattern = f"{prefix}:*"
        self.dumps: dict[bytes, bytes] = {}

    async def read(self) -> None:
        keys = sorted(await self.raw.keys(self._pattern))
        self.dumps = {key: await self.raw.dump(key) for key in keys}

    async def put_back(self) -> None:
        pipe = self.raw.pipeline(transaction=False)
        pipe.delete(*await self.raw.keys(self._pattern))
        for key, dump in self.dumps.items():
            pipe.restore(key, 0, dump)
        await pipe.execute()


def _is_own(key: bytes, prefix: str) -> bool:
    return key.startswith(f"{prefix}:hf:".encode())


@pytest.mark.req("R-2", "A-3")
@pytest.mark.parametrize("part", range(PARTS))
async def test_no_value_in_any_key_stops_the_store(url: str, part: int) -> None:
    prefix, found = url.rpartition("=")[2], []
    async with Holdfast(url) as app, Redis.from_url(url.partition("?")[0]) as raw:
        await populate(app)
        population = Population(raw, prefix)
        await population.read()
        assert [] == await faults(app)
        await population.put_back()
        kinds = {kind_of(key): key for key in population.dumps}
        for key in list(kinds.values())[part::PARTS]:
            for name, commands in await damages(raw, key):
                if name.startswith("is a ") and _is_own(key, prefix):
                    continue  # the next test
                await population.put_back()
                for command in commands:
                    await raw.execute_command(*command)
                found += [(key, name, fault) for fault in await faults(app)]
            await population.put_back()

    assert [] == found, "\n".join(map(repr, found))


@pytest.mark.req("R-2")
async def test_doctor_names_own_keys_of_a_wrong_type(url: str) -> None:
    prefix = url.rpartition("=")[2]
    async with Holdfast(url) as app, Redis.from_url(url.partition("?")[0]) as raw:
        await populate(app)
        population = Population(raw, prefix)
        await population.read()
        for name in TYPES:
            key = f"{prefix}:hf:{name}"
            await population.put_back()
            await raw.delete(key)
            await raw.geoadd(key, (1, 1, "x")) if TYPES[name] != "zset" else await raw.set(key, 1)

            findings = [f for f in await examine(app.store) if f.name == "keys" and key in f.text]
            errors = [fault for fault in await faults(app) if ": StoreError " not in fault]

            assert 1 == len(findings)
            # A claim that writes nothing returns no job.
            assert [] == [each for each in errors if not each.startswith("work: ValueError")]


@pytest.mark.req("R-2")
async def test_every_key_of_the_store_has_a_known_type(url: str) -> None:
    prefix = url.rpartition("=")[2]
    families = ("g", "t", "r", "c", "p", "minute", "record", "records")
    async with Holdfast(url) as app, Redis.from_url(url.partition("?")[0]) as raw:
        await populate(app)
        names = [key.decode().split(":hf:")[1] for key in await raw.keys(f"{prefix}:hf:*")]

        unknown = {n for n in names if n not in TYPES and n.split(":")[0] not in families}
        types = {n: (await raw.type(f"{prefix}:hf:{n}")).decode() for n in names if n in TYPES}

    assert set() == unknown
    assert {name: TYPES[name] for name in types} == types


RULES = (
    {"rate": "x", "per": 1},
    {"rate": 5},
    {"rate": 5, "per": -1},
    {"rate": 5, "per": 1e300, "burst": 1},
    {"concurrency": float("nan")},
    {"concurrency": [], "per": 1},
    {"rate": 5, "per": 1, "burst": "x"},
)


@pytest.mark.req("R-2")
async def test_damaged_limit_is_none(url: str) -> None:
    key = f"{url.rpartition('=')[2]}:hf:limits"
    async with Holdfast(url) as app, Redis.from_url(url.partition("?")[0]) as raw:
        for terms in RULES:
            for scope in ("queue:q", "task:t", "key:t"):
                await raw.delete(key)
                await raw.hset(key, scope, msgspec.msgpack.encode(terms))
                await app.submit("t", queue="q", limit_key="k")

                assert 1 == len(await Side(app.store).claim(queue="q")), (terms, scope)
                assert [] == await app.store.limits(), (terms, scope)
