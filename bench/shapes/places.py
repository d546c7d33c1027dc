"""The stores that shapes are measured on, and the processor time that their servers use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.pg.drain import children, cpu
from tests.servers import Postgres, Valkey

STORES = ("sqlite", "postgres", "redis")


class Places:
    """A fresh store for each measurement; servers start when the first one is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._postgres: Postgres | None = None
        self._valkey: Valkey | None = None

    def fresh(self, store: str) -> str:
        """Return the URL of an empty store."""
        self._made += 1
        if store == "sqlite":
            return f"sqlite:///{self._folder}/{self._made}.db"
        if store == "redis":
            return f"{self._server_of_redis().url}?prefix=shape{self._made}"
        server = self._server_of_postgres()
        name = f"shape{self._made}"
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        return server.dsn.removesuffix("/postgres") + f"/{name}"

    def settle(self, url: str) -> None:
        """Bring a store that was just filled into the state that it has after a while."""
        if url.startswith("postgresql"):
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")
                connection.execute("CHECKPOINT")

    def spent(self, url: str) -> float:
        """Return the processor time that the server of a store has used so far."""
        if url.startswith("sqlite"):
            return 0.0
        server = self._postgres if url.startswith("postgresql") else self._valkey
        assert server is not None
        assert server.process is not None
        pids = [server.process.pid, *children(server.process.pid)]
        return sum(map(cpu, pids))

    def connections(self, url: str) -> int:
        """Return how many connections to a database of PostgreSQL are open."""
        name = url.rpartition("/")[2]
        with psycopg.connect(self._server_of_postgres().dsn, autocommit=True) as admin:
            row = admin.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [name]
            ).fetchone()
        assert row is not None
        return row[0]

    def _server_of_postgres(self) -> Postgres:
        if self._postgres is None:
            options = ["full_page_writes=on", "shared_buffers=512MB", "max_connections=300"]
            self._postgres = Postgres(options).__enter__()
        return self._postgres

    def _server_of_redis(self) -> Valkey:
        if self._valkey is None:
            self._valkey = Valkey(["--appendfsync", "everysec"]).__enter__()
        return self._valkey

    def close(self) -> None:
        """Stop the servers."""
        for server in (self._postgres, self._valkey):
            if server is not None:
                server.close()


@contextmanager
def opened(folder: Path) -> Iterator[Places]:
    """Yield the stores; stop their servers at the end."""
    places = Places(folder)
    try:
        yield places
    finally:
        places.close()
