"""The stores under test, each with one function that gives it an empty place to keep jobs.

A store takes part as soon as its module exists. From then on a server that cannot be reached
fails its tests; nothing is skipped.
"""

from __future__ import annotations

import importlib.util
import tempfile
import uuid
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from holdfast.store import MemoryStore, open_store
from tests.requirements import STORES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from holdfast.clock import Clock
    from holdfast.store import Store


@dataclass
class Place:
    """Where jobs are kept, empty at first; any number of stores may be opened on it at once."""

    url: str
    file: Path | None = None
    """The one file that holds everything while no store is open, if there is such a file."""
    kept: dict[str, MemoryStore] = field(default_factory=dict)

    @property
    def is_shared(self) -> bool:
        """Whether other processes can open it too."""
        return not self.url.startswith("memory:")

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
    yield Place(f"{server.dsn}?schema=conformance&{careless}")


def empty_schema(dsn: str, schema: str = "conformance") -> None:
    """Empty the tables rather than make them anew: 5 ms instead of 80."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT format('DELETE FROM %%I.%%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname = %s AND tablename <> 'migration'",
            (schema,),
        ).fetchall()
        if tables:
            connection.execute(";".join(statement for (statement,) in tables))


@contextmanager
def redis(request: pytest.FixtureRequest) -> Iterator[Place]:
    # A prefix of its own is an empty place; nothing needs to be deleted in between.
    server = request.getfixturevalue("valkey_server")
    yield Place(f"{server.url}?prefix=t{uuid.uuid4().hex[:12]}")


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
