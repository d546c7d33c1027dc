"""A separate place in the user's store: a file, a schema or a prefix, removed afterwards."""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from holdfast.errors import Fault, ValidationError
from holdfast.store.urls import with_option

PORTS = {"postgresql": 5432, "postgres": 5432, "redis": 6379, "valkey": 6379}


class TortureSandbox:
    """The place in a store that a run uses; ``name`` must be unique."""

    def __init__(self, url: str, name: str) -> None:
        self._parts = urlsplit(url)
        self._name = f"torture_{name}"
        match self._parts.scheme:
            case "sqlite":
                path, mark, options = url.partition("?")
                self.url = f"{path}.{self._name}{mark}{options}"
            case "postgresql" | "postgres":
                self.url = with_option(url, f"schema={self._name}")
            case "redis" | "rediss" | "valkey" | "valkeys":
                self.url = with_option(url, f"prefix={self._name}")
            case _:
                message = "must be one that several processes can open: sqlite, postgresql or redis"
                raise ValidationError([Fault("url", "UNSUPPORTED", message)])

    @property
    def server(self) -> tuple[str, int] | None:
        """Host and port of the store's server, if connections to it can be cut."""
        parts = self._parts
        if parts.scheme not in PORTS or not parts.hostname or "," in parts.netloc:
            return None
        return parts.hostname, parts.port or PORTS[parts.scheme]

    def url_through(self, port: int) -> str:
        """Return the URL of the same place behind a local port."""
        parts = urlsplit(self.url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{port}"))

    def remove(self) -> None:
        """Delete everything that a run has written."""
        match self._parts.scheme:
            case "sqlite":
                self._unlink()
            case "postgresql" | "postgres":
                self._drop_schema()
            case _:
                self._unlink_keys()

    def _unlink(self) -> None:
        from holdfast.store.sqlite.location import Location

        path = Location.from_url(self.url).path
        for file in path.parent.glob(f"{path.name}*"):
            with contextlib.suppress(FileNotFoundError):
                Path(file).unlink()

    def _drop_schema(self) -> None:
        import psycopg
        from psycopg import sql

        from holdfast.store.postgres.settings import PostgresSettings

        settings = PostgresSettings.from_url(self.url)
        with psycopg.connect(settings.dsn, autocommit=True) as connection:
            name = sql.Identifier(settings.schema)
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(name))

    def _unlink_keys(self) -> None:
        import redis

        from holdfast.store.redis.settings import RedisSettings

        settings = RedisSettings.from_url(self.url)
        client = redis.Redis.from_url(settings.url)
        try:
            keys = list(client.scan_iter(f"{settings.prefix}:*", count=1000))
            for start in range(0, len(keys), 1000):
                client.unlink(*keys[start : start + 1000])
        finally:
            client.close()
