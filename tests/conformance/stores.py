"""The stores under test, each with one function that gives it an empty place to keep jobs.

A store takes part as soon as its module exists. From then on a server that cannot be reached
fails its tests; nothing is skipped.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from redis import Redis

from holdfast.store import MemoryStore, open_store
from tests.requirements import STORES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from holdfast.runtime.clock import Clock
    from holdfast.store import Store


SCHEMA = "conformance"
JOBS, KEPT = 0, 1
"""Databases of the Redis server: for the store under test, and for copies."""


@dataclass
class Place:
    """Where jobs are kept, empty at first; any number of stores may be opened on it at once."""

    url: str
    file: Path | None = None
    """The one file that holds everything while no store is open, if there is such a file."""
    dsn: str = ""
    """The server that holds everything in the tables of one schema, if there is one."""
    port: int = 0
    """The port of the server that holds everything in one database of keys, if there is one."""
    kept: dict[str, MemoryStore] = field(default_factory=dict)

    @property
    def is_shared(self) -> bool:
        """Whether other processes can open it too."""
        return not self.url.startswith("memory:")

    def save(self, kept: Path) -> None:
        """Save the contents while no store is open, if this place supports that."""
        if self.file is not None:
            shutil.copy(self.file, kept)
        elif self.dsn:
            copy_tables(self.dsn, SCHEMA, f"{SCHEMA}_kept")
            kept.with_suffix(".tables").touch()
        elif self.port:
            copy_keys(self.port, JOBS, KEPT)
            kept.with_suffix(".keys").touch()

    def restore(self, kept: Path) -> bool:
        """Fill this empty place with saved contents; return whether there were any."""
        if self.file is not None and kept.exists():
            shutil.copy(kept, self.file)
            return True
        if self.dsn and kept.with_suffix(".tables").exists():
            copy_tables(self.dsn, f"{SCHEMA}_kept", SCHEMA)
            return True
        if self.port and kept.with_suffix(".keys").exists():
            copy_keys(self.port, KEPT, JOBS)
            return True
        return False

    def open(self, clock: Clock | None = None) -> Store:
        """Return a store on this place, not yet started."""
        if self.is_shared:
            return open_store(self.url, clock=clock)
        return self.kept.setdefault("memory", MemoryStore(clock))


@contextmanager
def memory(_: pytest.FixtureRequest) -> Iterator[Place]:
    yield Place("memory://")


@contextmanager
def sqlite(_: pytest.FixtureRequest) -> Iterator[Place]:
    # What a sync to the disk costs is not the subject here: memory files, where there are any.
    fast = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as folder:
        yield Place(f"sqlite:///{folder}/jobs.db", Path(folder, "jobs.db"))


@contextmanager
def postgres(request: pytest.FixtureRequest) -> Iterator[Place]:
    server = request.getfixturevalue("postgres_server")
    empty_schema(server.dsn)
    # What a sync to the disk costs is not the subject here either.
    careless = "durability=server&options=-csynchronous_commit%3Doff"
    yield Place(f"{server.dsn}?schema={SCHEMA}&{careless}", dsn=server.dsn)


def empty_schema(dsn: str, schema: str = SCHEMA) -> None:
    """Empty the tables rather than make them anew: 5 ms instead of 80."""
    with psycopg.connect(dsn, options="-c synchronous_commit=off") as connection:
        for table in _tables(connection, schema):
            connection.execute(f"DELETE FROM {schema}.{table}")


def copy_tables(dsn: str, source: str, target: str) -> None:
    """Copy the rows of one schema into the tables of another, making those that are missing."""
    with psycopg.connect(dsn, options="-c synchronous_commit=off") as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {target}")
        for table in _tables(connection, source):
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {target}.{table} (LIKE {source}.{table})"
            )
            connection.execute(
                f"INSERT INTO {target}.{table} OVERRIDING SYSTEM VALUE"
                f" SELECT * FROM {source}.{table}"
            )


def _tables(connection: psycopg.Connection, schema: str) -> list[str]:
    tables = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'migration'",
        (schema,),
    )
    return [table for (table,) in tables.fetchall()]


@contextmanager
def redis(request: pytest.FixtureRequest) -> Iterator[Place]:
    server = request.getfixturevalue("valkey_server")
    with Redis(port=server.port, db=JOBS) as client:
        client.flushdb()
    yield Place(f"{server.url}?prefix=t", port=server.port)


def copy_keys(port: int, source: int, target: int) -> None:
    """Make one database of a server a copy of another."""
    with Redis(port=port, db=target) as client:
        client.flushdb()
    with Redis(port=port, db=source) as client:
        client.eval(
            "for _, key in ipairs(redis.call('KEYS', '*')) do"
            " redis.call('COPY', key, key, 'DB', ARGV[1]) end",
            *(0, str(target)),
        )


PLACES: dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager[Place]]] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
    "redis": redis,
}

NAMES = [
    name
    for name in STORES
    if name in PLACES and importlib.util.find_spec(f"holdfast.store.{name}") is not None
]
