"""The setting ``HOLDFAST``, and the URL of the store, which can be one of Django's databases."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from holdfast.store import DEFAULT_URL

NAME = "HOLDFAST"
_PLAIN_HOST = re.compile(r"[A-Za-z0-9.-]+", re.ASCII)
_DJANGO_ONLY = frozenset(
    {
        "assume_role",
        "client_encoding",
        "connection_factory",
        "cursor_factory",
        "isolation_level",
        "pool",
        "prepare_threshold",
        "server_side_binding",
    }
)
"""Options of a database that are Django's or psycopg's, not libpq's."""


class DjangoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a project configures."""

    url: str = ""
    """The store; without it $HOLDFAST_URL, else the database of Django if it is PostgreSQL."""
    database: str = DEFAULT_DB_ALIAS
    """The database of Django whose transactions decide whether a job exists."""
    shares_database: bool | None = None
    """Whether the store is in that database; None compares the addresses."""
    queues: Mapping[str, str] = {}
    """The profiles of queues, by name."""
    autodiscover: Sequence[str] = ("tasks",)
    """Modules that every installed application may have, and that register tasks."""
    version: str = ""
    """What workers report as the version of the project."""


def read_settings() -> DjangoSettings:
    """Read ``settings.HOLDFAST``; ImproperlyConfigured names the key and the rule."""
    given: object = getattr(settings, NAME, {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"{NAME} must be a dict, got {type(given).__name__}")
    known = {name.upper(): name for name in DjangoSettings.__struct_fields__}
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(str(key).upper(), known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise ImproperlyConfigured(f"{NAME}[{key!r}] is not a setting: {hint}")
    try:
        return msgspec.convert({known[key]: value for key, value in given.items()}, DjangoSettings)
    except msgspec.ValidationError as error:
        raise ImproperlyConfigured(f"{NAME}: {_upper(str(error))}") from None


def store_url() -> str:
    """Return the URL of the store, as the settings and Django's databases are now.

    A test run changes the names of the databases after the applications are loaded.
    """
    given = read_settings()
    if url := given.url or os.environ.get("HOLDFAST_URL"):
        return url
    return database_url(given.database) or _file_url()


def _file_url() -> str:
    """Return a file of the project: its processes need not run in the same folder."""
    folder = getattr(settings, "BASE_DIR", None)
    return f"sqlite:///{Path(folder).absolute()}/holdfast.db" if folder else DEFAULT_URL


def is_own_database(url: str) -> bool:
    """Whether the store of this URL is in the database of Django that the settings name."""
    given = read_settings()
    if given.shares_database is not None:
        return given.shares_database
    own = database_url(given.database)
    if not own:
        return False
    from holdfast.store.urls import is_postgres

    return is_postgres(url) and _address(url) == _address(own)


def database_url(alias: str) -> str:
    """Return the URL of a database of Django; an empty text when it is not PostgreSQL."""
    if alias not in connections.settings:
        raise ImproperlyConfigured(f"{NAME}['DATABASE'] must be one of DATABASES, got {alias!r}")
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return ""
    given: Mapping[str, Any] = connection.settings_dict
    login = quote(str(given["USER"]), safe="")
    if given["PASSWORD"]:
        login += f":{quote(str(given['PASSWORD']), safe='')}"
    query = {
        name: str(value)
        for name, value in (given.get("OPTIONS") or {}).items()
        if name not in _DJANGO_ONLY and isinstance(value, str | int)
    }
    host = str(given["HOST"] or "")
    if host and not _PLAIN_HOST.fullmatch(host):
        query["host"], host = host, ""  # a folder of sockets, or several hosts
    if given["PORT"] and not host:
        query["port"] = str(given["PORT"])
    place = f"{host}:{given['PORT']}" if host and given["PORT"] else host
    name = quote(str(given["NAME"] or ""), safe="")
    start = f"postgresql://{f'{login}@' if login else ''}{place}/{name}"
    return start + (f"?{urlencode(query, quote_via=quote)}" if query else "")


def _address(url: str) -> tuple[object, ...]:
    """Where a URL of PostgreSQL leads: host, port and database."""
    from psycopg.conninfo import conninfo_to_dict

    from holdfast.store.postgres.settings import PostgresSettings

    given = conninfo_to_dict(PostgresSettings.from_url(url).dsn)
    host, port = given.get("host") or given.get("service"), str(given.get("port") or "5432")
    return host or "", port, given.get("dbname") or given.get("user")


def _upper(message: str) -> str:
    """Name the key of a fault as the setting writes it."""
    return re.sub(r"`\$\.(\w+)", lambda found: f"`{found[1].upper()}", message)
