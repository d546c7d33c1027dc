"""Stores with a key ring in front, and a way to see every byte that they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from redis.asyncio import Redis

from holdfast.encryption import KeyRing, encrypted
from tests.conformance.conftest import SERVED, clock, hand, store
from tests.conformance.stores import NAMES, PLACES, SCHEMA, Place, _tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.runtime.clock import Clock
    from holdfast.store import Store

__all__ = ["clock", "hand", "store"]


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty place; the two quick ones do for the contract."""
    with PLACES[request.param](request) as place:
        yield place


@pytest.fixture(
    params=[pytest.param(name, marks=SERVED.get(name, ())) for name in NAMES if name != "memory"]
)
def shared_place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty place that keeps its bytes outside of this process."""
    with PLACES[request.param](request) as place:
        yield place


async def every_byte(place: Place) -> bytes:
    """Return everything a place keeps, as it is kept."""
    if place.file is not None:
        files = place.file.parent.glob(f"{place.file.name}*")
        return b"".join(file.read_bytes() for file in files if file.is_file())
    if place.dsn:
        with psycopg.connect(place.dsn) as connection:
            rows = [
                row
                for table in _tables(connection, SCHEMA)
                for row in connection.execute(f"SELECT * FROM {SCHEMA}.{table}")
            ]
        return repr(rows).encode()
    url, _, prefix = place.url.partition("?prefix=")
    client = Redis.from_url(url)
    try:
        keys = [key async for key in client.scan_iter(f"*{prefix}*")]
        return b"\n".join([key + await _value(client, key) for key in keys])
    finally:
        await client.aclose()


async def _value(client: Redis, key: bytes) -> bytes:
    match await client.type(key):
        case b"hash":
            return repr(await client.hgetall(key)).encode()
        case b"list":
            return repr(await client.lrange(key, 0, -1)).encode()
        case b"zset":
            return repr(await client.zrange(key, 0, -1)).encode()
        case b"set":
            return repr(await client.smembers(key)).encode()
        case b"stream":
            return repr(await client.xrange(key)).encode()
        case _:
            return repr(await client.get(key)).encode()


class PlainDigests(KeyRing):
    """A ring that leaves digests alone, so that jobs come back as they were given."""

    def digest(self, digest: str) -> str:
        return digest


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing.parse(KeyRing.generate("k1"))


@pytest.fixture(autouse=True)
def behind_a_ring(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every store that a shared conformance test opens be an encrypted one."""
    if request.module.__name__.endswith("test_conformance"):
        keys = PlainDigests.parse(KeyRing.generate("k1"))
        opened = Place.open

        def open_encrypted(place: Place, clock: Clock | None = None) -> Store:
            return encrypted(opened(place, clock), keys)

        monkeypatch.setattr(Place, "open", open_encrypted)
