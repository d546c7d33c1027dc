"""What a ``postgresql://`` URL may say besides where the server is."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from holdfast.errors import StoreError
from holdfast.store.postgres.sql import checked_schema

DEFAULT_SCHEMA = "holdfast"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the server, and what to expect of it."""

    dsn: str
    schema: str = DEFAULT_SCHEMA
    pool: int = 8
    """Connections for the store's own calls; handlers' transactions get as many again."""
    pgbouncer: bool = False
    """Behind PgBouncer in transaction mode: no prepared statements, no session settings."""
    listen_url: str = ""
    """Where to LISTEN, when ``dsn`` leads to PgBouncer; without it new work is polled for."""
    durability: str = "full"
    """``server`` accepts whatever fsync and synchronous_commit the server has."""
    timeout: timedelta = timedelta(seconds=30)
    """No statement takes longer: the call fails with StoreUnavailableError instead."""
    wait: timedelta = timedelta(seconds=5)
    """How long a call waits for a connection before it fails with StoreUnavailableError."""
    migrate: bool = True
    """Bring the schema up to date on start; else a schema that is behind is an error."""

    @classmethod
    def from_url(cls, url: str) -> Settings:
        """Read a URL; parameters that are not ours are left for libpq."""
        parts = urlsplit(url)
        ours: dict[str, object] = {}
        rest = []
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name in _READERS:
                ours[name] = _READERS[name](name, value)
            else:
                rest.append((name, value))
        scheme = "postgresql"
        dsn = urlunsplit((scheme, parts.netloc, parts.path, urlencode(rest), ""))
        return cls(dsn=dsn, **ours)  # type: ignore[arg-type]  # each reader gives its field's type


def _flag(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise StoreError(f"{name} in the URL must be true or false, got {value!r:.60}")
    return value == "true"


def _pool(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 4 and 1 <= int(value) <= 1000):
        raise StoreError(f"{name} in the URL must be between 1 and 1000, got {value!r:.60}")
    return int(value)


def _seconds(name: str, value: str) -> timedelta:
    try:
        span = timedelta(seconds=float(value))
    except (ValueError, OverflowError):
        span = timedelta(0)
    if span <= timedelta(0):
        raise StoreError(f"{name} in the URL must be seconds above 0, got {value!r:.60}")
    return span


def _schema(name: str, value: str) -> str:
    try:
        return checked_schema(value)
    except ValueError as error:
        raise StoreError(f"{name} in the URL: {error}") from None


def _durability(name: str, value: str) -> str:
    if value not in ("full", "server"):
        raise StoreError(f"{name} in the URL must be full or server, got {value!r:.60}")
    return value


def _text(_: str, value: str) -> str:
    return value


_READERS = {
    "schema": _schema,
    "pool": _pool,
    "pgbouncer": _flag,
    "listen_url": _text,
    "durability": _durability,
    "timeout": _seconds,
    "wait": _seconds,
    "migrate": _flag,
}
