"""What libpq is told when a connection is made: the URL's words first, then our own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from psycopg.abc import ConnParam
from psycopg.conninfo import conninfo_to_dict, make_conninfo

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
    """Return all that libpq needs to know; ``session`` are settings that the session begins with.

    They are part of the greeting, so that a pooler refuses them: sent afterwards, they would
    stay behind in a session that it hands to another application. Texts are always UTF-8,
    whatever the role or the environment prefers.
    """
    given = conninfo_to_dict(dsn)
    told: dict[str, ConnParam] = {**_DEFAULTS, **given, "client_encoding": "UTF8"}
    ours = " ".join(f"-c {name}={_escaped(value)}" for name, value in session.items())
    theirs = given.get("options") or os.environ.get("PGOPTIONS")
    if options := " ".join(filter(None, [ours, str(theirs or "")])):
        told["options"] = options
    return make_conninfo("", **told)


def _escaped(value: object) -> str:
    return str(value).replace(" ", r"\ ")
