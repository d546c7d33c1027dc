"""The settings in a ``postgresql://`` URL, and the connection string made of them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from urllib.parse import unquote

import msgspec
import psycopg
from psycopg.abc import ConnParam
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from holdfast.errors import StoreError

DEFAULT_SCHEMA = "holdfast"
MOST_CONNECTIONS = 1000
HIGHEST_PORT = 65_535
SHORTEST, LONGEST = timedelta(milliseconds=1), timedelta(days=1)
"""The bounds of a span: PostgreSQL counts milliseconds, and 0 means no limit."""
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,47}", re.ASCII)
_URL = re.compile(r"postgres(?:ql)?:(//(?:[^@/]*@)?[^?]*)(?:\?(.*))?", re.DOTALL | re.IGNORECASE)
"""Split as libpq does it: a password may contain a question mark."""

NO_LIMIT = timedelta(0)

_SESSION = {
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
# A fresh jobs table has no statistics. The planner then collects and sorts all ready jobs for
# every claim, and reads the whole table for every swap: 25 times slower, both measured. Generic
# plans do neither, and are made once. Without sequential scans jobs are reached by their numbers,
# however few there are, and so are locked in that order. Searches turn all of these on again.
_TIMEOUTS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")


class PostgresSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the server and use it; StoreError if a setting is invalid."""

    dsn: str
    schema: str = DEFAULT_SCHEMA
    pool: int = 8
    """Connections for the store's own calls; handlers' transactions get as many again."""
    pgbouncer: bool = False
    """Behind PgBouncer in transaction mode: no prepared statements, no session settings."""
    listen_url: str = ""
    """Where to LISTEN when ``dsn`` leads to PgBouncer; without it new work is polled for."""
    durability: str = "full"
    """``server`` accepts any fsync and synchronous_commit of the server."""
    timeout: timedelta = timedelta(seconds=30)
    """A statement that takes longer fails with StoreUnavailableError."""
    wait: timedelta = timedelta(seconds=5)
    """How long a call waits for a connection before it fails with StoreUnavailableError."""
    migrate: bool = True
    """Bring the schema up to date on start; without it an outdated schema is an error."""

    @classmethod
    def from_url(cls, url: str) -> PostgresSettings:
        """Read a URL; all other parameters are passed to libpq unchanged."""
        match = _URL.fullmatch(url)
        if match is None:
            raise StoreError("the URL of the store must begin with postgresql://")
        address, query = match.groups(default="")
        own: dict[str, object] = {}
        rest = []
        for parameter in filter(None, query.split("&")):
            name, _, value = parameter.partition("=")
            if name in _READERS:
                own[name] = _READERS[name](name, unquote(value))
            else:
                rest.append(_known_to_libpq(parameter, name))
        dsn = f"postgresql:{address}" + ("?" + "&".join(rest) if rest else "")
        return cls(dsn=dsn, **own)  # type: ignore[arg-type]  # each reader gives its field's type

    def __post_init__(self) -> None:
        if not _SCHEMA.fullmatch(self.schema):
            rule = "1 to 48 of a-z, 0-9 and _, and neither begin with pg_ nor with a digit"
            raise StoreError(f"schema must be {rule}, got {self.schema!r:.60}")
        if not 1 <= self.pool <= MOST_CONNECTIONS:
            raise StoreError(f"pool must be between 1 and {MOST_CONNECTIONS}, got {self.pool}")
        if self.durability not in ("full", "server"):
            raise StoreError(f"durability must be full or server, got {self.durability!r:.60}")
        for name, span in (("timeout", self.timeout), ("wait", self.wait)):
            if not SHORTEST <= span <= LONGEST:
                rule = f"between {SHORTEST.total_seconds():g} and {LONGEST.total_seconds():g} s"
                raise StoreError(f"{name} must be {rule}, got {span.total_seconds():g}")
        if self.listen_url and not _URL.fullmatch(self.listen_url):
            raise StoreError("listen_url must begin with postgresql://")
        _must_be_readable(self.dsn, "the URL of the store")
        _must_be_readable(self.listen_url, "listen_url")


def _known_to_libpq(parameter: str, name: str) -> str:
    """Return a parameter of libpq; refuse an unknown name."""
    if unquote(name) in _libpq_names():
        return parameter
    close = difflib.get_close_matches(name, [*_READERS, *_libpq_names()], 1)
    hint = f": did you mean {close[0]}?" if close else ""
    raise StoreError(f"{name!r:.60} in the URL of the store is not known{hint}")


@cache
def _libpq_names() -> frozenset[str]:
    return frozenset(["ssl", *(option.keyword.decode() for option in Conninfo.get_defaults())])


def _must_be_readable(dsn: str, name: str) -> None:
    try:
        ports = str(conninfo_to_dict(dsn).get("port") or "").split(",")
    except psycopg.Error:  # its text is left out of the message: it may contain a password
        raise StoreError(
            f"{name} is malformed: check its parameters, brackets and encoding"
        ) from None
    for port in filter(None, ports):
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= HIGHEST_PORT):
            rule = f"must be a number up to {HIGHEST_PORT}"
            raise StoreError(f"the port in {name} {rule}, got {port!r:.60}")


def _flag(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise StoreError(f"{name} must be true or false, got {value!r:.60}")
    return value == "true"


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(MOST_CONNECTIONS))):
        raise StoreError(f"{name} must be between 1 and {MOST_CONNECTIONS}, got {value!r:.60}")
    return int(value)


def _seconds(name: str, value: str) -> timedelta:
    try:
        return timedelta(seconds=float(value))
    except (ValueError, OverflowError):
        raise StoreError(f"{name} must be a number of seconds, got {value!r:.60}") from None


def _text(_: str, value: str) -> str:
    return value


_READERS: Mapping[str, Callable[[str, str], object]] = {
    "schema": _text,
    "pool": _number,
    "pgbouncer": _flag,
    "listen_url": _text,
    "durability": _text,
    "timeout": _seconds,
    "wait": _seconds,
    "migrate": _flag,
}


_DEFAULTS: Mapping[str, ConnParam] = {
    "connect_timeout": 10,
    "fallback_application_name": "holdfast",
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def conninfo(dsn: str, session: Mapping[str, object]) -> str:
    """Return the connection string for libpq; ``session`` are settings to start the session with.

    They are part of the startup message, so that a pooler refuses them: set afterwards, they
    would stay in a session that it hands to another application. Texts are always UTF-8,
    regardless of the role and the environment.
    """
    given = conninfo_to_dict(dsn)
    params: dict[str, ConnParam] = {**_DEFAULTS, **given, "client_encoding": "UTF8"}
    own = " ".join(f"-c {name}={_escaped(value)}" for name, value in session.items())
    others = given.get("options") or os.environ.get("PGOPTIONS")
    if options := " ".join(filter(None, [own, str(others or "")])):
        params["options"] = options
    return make_conninfo("", **params)


def store_conninfo(settings: PostgresSettings, limit: timedelta) -> str:
    """Return the same for a session of the store, with a limit for its statements."""
    if settings.pgbouncer:
        return conninfo(settings.dsn, {})
    milliseconds = limit // timedelta(milliseconds=1)
    return conninfo(settings.dsn, {**_SESSION, **dict.fromkeys(_TIMEOUTS, milliseconds)})


def _escaped(value: object) -> str:
    return str(value).replace(" ", r"\ ")
