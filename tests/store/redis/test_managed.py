"""Servers of a cloud that block CONFIG are recognised by what they say about themselves."""

from __future__ import annotations

import pytest

from holdfast.errors import StoreError
from holdfast.store.redis import RedisStore
from holdfast.store.values import Level
from tests.servers import Valkey
from tests.store.redis.refusing import RefusingServer

pytestmark = pytest.mark.redis
BLOCKED = {"CONFIG": "ERR unknown command 'CONFIG'"}
ABOUT = "redis_version:7.1.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n"


def _server(valkey: Valkey, system: str, aof: int) -> RefusingServer:
    info = f"{ABOUT}os:{system}\r\naof_enabled:{aof}\r\n"
    return RefusingServer(valkey.port, BLOCKED, {"INFO": info})


@pytest.mark.parametrize(
    ("system", "aof", "level", "text"),
    [
        ("Amazon MemoryDB", 0, Level.OK, "MemoryDB"),
        ("Amazon ElastiCache", 1, Level.OK, "everysec"),
        ("Amazon ElastiCache", 0, Level.WARN, "Use MemoryDB"),
        ("Linux 6.1 x86_64", 1, Level.WARN, "does not report"),
    ],
)
async def test_durability_of_a_managed_server_is_known_without_config(
    valkey_server: Valkey, system: str, aof: int, level: Level, text: str
) -> None:
    async with (
        _server(valkey_server, system, aof) as server,
        RedisStore.from_url(f"{server.url}?prefix=managed") as store,
    ):
        (found,) = [each for each in await store.findings() if each.name == "durability"]

    assert level is found.level
    assert text in f"{found.text} {found.advice}"


@pytest.mark.parametrize("system", ["Amazon MemoryDB", "Amazon ElastiCache"])
async def test_managed_server_that_cannot_confirm_a_sync_is_refused(
    valkey_server: Valkey, system: str
) -> None:
    async with _server(valkey_server, system, 0) as server:
        with pytest.raises(StoreError, match="durability=fsync"):
            await RedisStore.from_url(f"{server.url}?durability=fsync").start()
